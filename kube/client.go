package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// KubernetesVersion is the Kubernetes release whose behaviour kubelot has, in the form in
// which a node reports its kubelet version. The control plane checks its skew against it.
const KubernetesVersion = "v1.36.3"

// requestTimeout bounds one request that isn't a watch.
const requestTimeout = 30 * time.Second

// dialTimeout and keepAlive are for new connections.
const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// unknownServer stands in requests for the API server's address until that is known.
const unknownServer = "https://apiserver"

// Options say how a Client behaves. The zero value is usable.
type Options struct {
	// Daemon names the user in the API server's logs: the user agent is "kubelot/<version> (<daemon>)".
	Daemon string
	// Version is kubelot's own version for the user agent.
	Version string
	// QPS and Burst limit the requests of this client, as kubeAPIQPS and kubeAPIBurst do: so many in a second, and so many
	// at once. QPS 0 means no limit. The defaults are the configuration's.
	QPS   float32
	Burst int
	// ContentType is KubeletConfiguration's contentType; empty means protobuf.
	ContentType string
	// Certificate is a file with a client certificate and its key that takes the place of the user in the kubeconfig: the
	// one that is rotated. Empty means the kubeconfig's user.
	Certificate string
	// Log gets warnings about watches that fail. Nil means slog.Default().
	Log *slog.Logger
}

// WithLimits returns the options with two fields of KubeletConfiguration: kubeAPIQPS and kubeAPIBurst, or
// eventRecordQPS and eventBurst. Nil means no limit, as 0 does.
func (o Options) WithLimits(qps *int32, burst int32) Options {
	o.QPS, o.Burst = 0, int(burst)
	if qps != nil {
		o.QPS = float32(*qps)
	}
	return o
}

// Client talks to the API server. Its methods may be called from several goroutines.
type Client struct {
	core         rest.Interface
	coordination rest.Interface
	node         rest.Interface
	storage      rest.Interface
	conns        *connrotation.Dialer
	credentials  *credentials
	config       *rest.Config
	http         *http.Client
	outage       *outage
	log          *slog.Logger
}

// Open builds a client from a kubeconfig file. The file, or one that it names, may still have to be written (TLS
// bootstrap), or to be renewed: requests wait until it is there, each as long as its context lets it. All of them are
// read again when they change. Open makes no connection; its error names a file that is there and can't be used.
func Open(kubeconfig string, o Options) (*Client, error) {
	c, err := open(kubeconfig, o)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, nil
}

// NewClient is Open for those who need credentials now: its error wraps fs.ErrNotExist where a file isn't there (yet),
// or the client certificate has ended.
func NewClient(kubeconfig string, o Options) (*Client, error) {
	c, err := open(kubeconfig, o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// WaitClient is NewClient that waits until the files are there; it returns other errors at once.
func WaitClient(ctx context.Context, kubeconfig string, o Options) (*Client, error) {
	c, err := Open(kubeconfig, o)
	if err != nil {
		return nil, err
	}
	if c.Await(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	return c, nil
}

// Await waits until there are credentials; its error says what is missing when ctx ends.
func (c *Client) Await(ctx context.Context) error {
	_, err := c.credentials.await(ctx)
	return err
}

// Config is what another typed client needs to share this one's connections and limits, for API groups that only
// one daemon uses.
func (c *Client) Config() (*rest.Config, *http.Client) { return rest.CopyConfig(c.config), c.http }

// Reconnect closes all connections to the API server, so that the next request of any kind
// opens a new one. It is for a server that has not answered for long.
func (c *Client) Reconnect() { c.conns.CloseAll() }

// Close closes the connections. Watches end with their own contexts.
func (c *Client) Close() {
	c.conns.CloseAll()
	c.http.CloseIdleConnections()
}

func (o Options) withDefaults() Options {
	if o.ContentType == "" {
		o.ContentType = runtime.ContentTypeProtobuf
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// open makes the client in any case except a programmer's error, and reports what is wrong with the credentials.
func open(kubeconfig string, o Options) (*Client, error) {
	o = o.withDefaults()
	c := &Client{outage: newOutage(unknownServer), log: o.Log}
	c.conns = connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	c.credentials = &credentials{
		kubeconfig: kubeconfig, certificate: o.Certificate, dial: c.conns.DialContext, log: o.Log,
		userAgent: fmt.Sprintf("kubelot/%s (%s) kubernetes/%s", o.Version, o.Daemon, KubernetesVersion),
	}
	s, err := c.credentials.look(time.Now())
	if s != nil {
		c.outage.host = s.base.Scheme + "://" + s.base.Host
	}
	return c, errors.Join(err, c.connect(o))
}

// connect makes the clients of the groups.
func (c *Client) connect(o Options) (err error) {
	// A QPS of 0 would be client-go's default for each group.
	cfg := &rest.Config{Host: c.outage.host, QPS: -1}
	cfg.ContentType = o.ContentType
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// One limiter for all groups of this client; each group's client would make its own otherwise.
	if o.QPS > 0 {
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, max(o.Burst, 1))
	}
	c.config, c.http = cfg, &http.Client{Transport: c.credentials}
	if c.core, err = c.rest(coreGroup); err != nil {
		return err
	}
	if c.coordination, err = c.rest(coordinationGroup); err != nil {
		return err
	}
	if c.node, err = c.rest(nodeGroup); err != nil {
		return err
	}
	c.storage, err = c.rest(storageGroup)
	return err
}

func (c *Client) reporter(args ...any) *reporter {
	return &reporter{log: c.log.With(args...), whole: c.outage}
}
