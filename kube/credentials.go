package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// lookEvery is how often the files are looked at while they are in use, and awaitEvery while they aren't there.
	lookEvery  = time.Second
	awaitEvery = 200 * time.Millisecond
)

// credentials are a transport to the server that a kubeconfig names, as the user that it names. The files are read
// again when they change: the next request goes out with what they say then, and those under way end as they began.
// While there are no usable ones, requests wait.
type credentials struct {
	kubeconfig  string
	certificate string // takes the place of the kubeconfig's user; empty for that
	userAgent   string
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	log         *slog.Logger

	mu      sync.Mutex
	current *session
	looked  time.Time
	told    string // the last complaint
}

// session is one state of the files.
type session struct {
	base      *url.URL
	transport http.RoundTripper
	files     map[string]stamp
}

// stamp reports whether a file was replaced.
type stamp struct {
	at   time.Time
	size int64
}

// pending says why there are no credentials yet. It is an fs.ErrNotExist whatever the reason.
type pending struct{ error }

func (p pending) Is(target error) bool { return target == fs.ErrNotExist }
func (p pending) Unwrap() error        { return p.error }

// RoundTrip sends a request to the kubeconfig's server, whatever host it is addressed to.
func (c *credentials) RoundTrip(r *http.Request) (*http.Response, error) {
	s, err := c.await(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper has to, and nothing was read from it
		}
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Host, out.URL.Scheme, out.URL.Host = "", s.base.Scheme, s.base.Host
	if prefix := strings.TrimRight(s.base.Path, "/"); prefix != "" {
		out.URL.Path = prefix + r.URL.Path
		if r.URL.RawPath != "" {
			out.URL.RawPath = strings.TrimRight(s.base.EscapedPath(), "/") + r.URL.RawPath
		}
	}
	return s.transport.RoundTrip(out)
}

// CloseIdleConnections closes the connections that no request uses.
func (c *credentials) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		utilnet.CloseIdleConnectionsFor(c.current.transport)
	}
}

// await waits for credentials until ctx ends.
func (c *credentials) await(ctx context.Context) (*session, error) {
	for {
		s, err := c.look(time.Now())
		if err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w while waiting for credentials for the API server: %w", ctx.Err(), err)
		case <-time.After(awaitEvery):
		}
	}
}

// look returns the credentials as the files are now.
func (c *credentials) look(now time.Time) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && (now.Sub(c.looked) < lookEvery || c.current.upToDate()) {
		return c.current, nil
	}
	c.looked = now
	s, err := c.read(now)
	switch {
	case err != nil:
		c.complain(err)
		if c.current == nil {
			return nil, err
		}
		return c.current, nil
	case c.current != nil:
		utilnet.CloseIdleConnectionsFor(c.current.transport)
		c.log.Info("the credentials for the API server have changed; new requests use them", "server", s.base.Host)
	case c.told != "":
		c.log.Info("the credentials for the API server are available", "server", s.base.Host)
	}
	c.current, c.told = s, ""
	return s, nil
}

// complain says once what is wrong with the files.
func (c *credentials) complain(err error) {
	if text := err.Error(); text != c.told {
		c.told = text
		if c.current == nil {
			c.log.Info("waiting for the API server's credentials to be written", "error", err)
		} else {
			c.log.Warn("can't use the changed credentials for the API server; the previous ones stay in use", "error", err)
		}
	}
}

// read makes a session of what the files say now.
func (c *credentials) read(now time.Time) (*session, error) {
	s := &session{files: map[string]stamp{}}
	if err := s.note(c.kubeconfig); err != nil {
		return nil, pending{fmt.Errorf("read the API server's kubeconfig: %w", err)}
	}
	cfg, err := c.config(s)
	if err != nil {
		err = fmt.Errorf("kubeconfig %s is not usable: %w", c.kubeconfig, err)
		if errors.Is(err, fs.ErrNotExist) {
			err = pending{err}
		}
		return nil, err
	}
	if end, ok := notAfter(cfg.CertData); ok && now.After(end) {
		return nil, pending{fmt.Errorf("the client certificate in %s expired at %s: renew it",
			cmp.Or(c.certificate, c.kubeconfig), end.Format(time.RFC3339))}
	}
	if s.base, _, err = rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, true); err == nil {
		s.transport, err = rest.TransportFor(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("client for kubeconfig %s: %w", c.kubeconfig, err)
	}
	return s, nil
}

// config is the kubeconfig with the content of all files that it names, so that the transport doesn't follow them
// itself.
func (c *credentials) config(s *session) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, err
	}
	if c.certificate != "" {
		cfg = rest.AnonymousClientConfig(cfg)
		cfg.CertFile, cfg.KeyFile = c.certificate, c.certificate
	}
	for _, file := range []string{cfg.CAFile, cfg.CertFile, cfg.KeyFile} {
		if file == "" {
			continue
		}
		if err := s.note(file); err != nil {
			return nil, err
		}
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	if err := whole(cfg); err != nil {
		return nil, err
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	cfg.Dial, cfg.UserAgent = c.dial, c.userAgent
	return cfg, nil
}

// whole finds files that are still being written: a client certificate without its key, or with that of another one.
// Both may be renewed one after the other.
func whole(cfg *rest.Config) error {
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil
	}
	if _, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData); err != nil {
		return pending{fmt.Errorf("the client certificate %s and the key %s don't fit together: %w", cfg.CertFile,
			cfg.KeyFile, err)}
	}
	return nil
}

func (s *session) note(file string) error {
	at, err := stampOf(file)
	s.files[file] = at
	return err
}

// upToDate reports whether the files are still those that were read.
func (s *session) upToDate() bool {
	for file, before := range s.files {
		if now, err := stampOf(file); err != nil || now != before {
			return false
		}
	}
	return true
}

func stampOf(file string) (stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

// notAfter is when the first of the certificates ends; false where there is none.
func notAfter(pem []byte) (end time.Time, ok bool) {
	certificates, err := certutil.ParseCertsPEM(pem)
	if err != nil {
		return time.Time{}, false
	}
	for _, c := range certificates {
		if !ok || c.NotAfter.Before(end) {
			end, ok = c.NotAfter, true
		}
	}
	return end, ok
}
