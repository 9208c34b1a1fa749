package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	nodev1 "k8s.io/client-go/kubernetes/typed/node/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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

// Options say how a Client behaves. The zero value is usable.
type Options struct {
	// Daemon names the user in the API server's logs: the user agent is "kubelot/<version> (<daemon>)".
	Daemon string
	// Version is kubelot's own version for the user agent.
	Version string
	// QPS and Burst limit the requests of this client, as kubeAPIQPS and kubeAPIBurst do. QPS 0
	// means 50 and Burst 0 means 100; a negative QPS means no limit.
	QPS   float32
	Burst int
	// ContentType is KubeletConfiguration's contentType; empty means protobuf.
	ContentType string
	// Log gets warnings about watches that fail. Nil means slog.Default().
	Log *slog.Logger
}

// Client talks to the API server. Its methods may be called from several goroutines.
type Client struct {
	core         *corev1.CoreV1Client
	coordination *coordinationv1.CoordinationV1Client
	node         *nodev1.NodeV1Client
	conns        *connrotation.Dialer
	config       *rest.Config
	http         *http.Client
	host         string
	outage       *outage
	log          *slog.Logger
}

// NewClient builds a client from a kubeconfig file. It makes no connection. The error names the
// file; it wraps fs.ErrNotExist where the file, or one that it names, isn't there (yet).
func NewClient(kubeconfig string, o Options) (*Client, error) {
	o = o.withDefaults()
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("read the API server's kubeconfig: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s is not usable: %w", kubeconfig, err)
	}
	c, err := newClient(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("client for kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// WaitClient is NewClient for a node whose kubeconfig is still to be written (TLS bootstrap): it
// tries again each second until the files are there, and returns other errors at once.
func WaitClient(ctx context.Context, kubeconfig string, o Options) (*Client, error) {
	o = o.withDefaults()
	told := false
	for {
		c, err := NewClient(kubeconfig, o)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
		if !told {
			o.Log.Info("waiting for the API server's credentials to be written", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// Host is the API server's URL.
func (c *Client) Host() string { return c.host }

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
	if o.QPS == 0 {
		o.QPS = 50
	}
	if o.Burst == 0 {
		o.Burst = 100
	}
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

func newClient(cfg *rest.Config, o Options) (*Client, error) {
	c := &Client{config: cfg, host: cfg.Host, outage: &outage{host: cfg.Host}, log: o.Log}
	cfg.ContentType = o.ContentType
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.UserAgent = fmt.Sprintf("kubelot/%s (%s) kubernetes/%s", o.Version, o.Daemon, KubernetesVersion)
	// One limiter for all groups of this client; each group's client would make its own otherwise.
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	if o.QPS > 0 {
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
	}
	c.conns = connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	cfg.Dial = c.conns.DialContext

	var err error
	if c.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, err
	}
	if c.core, err = corev1.NewForConfigAndClient(cfg, c.http); err != nil {
		return nil, err
	}
	if c.coordination, err = coordinationv1.NewForConfigAndClient(cfg, c.http); err != nil {
		return nil, err
	}
	if c.node, err = nodev1.NewForConfigAndClient(cfg, c.http); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Client) reporter(args ...any) *reporter {
	return &reporter{log: c.log.With(args...), whole: c.outage}
}
