package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// RegisterMetrics registers metrics; of says whose they are, for the error.
func RegisterMetrics(registry prometheus.Registerer, of string, all ...prometheus.Collector) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, registry.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the metrics of %s: %w", of, err)
	}
	return nil
}

// metricsServer serves a daemon's metrics on its unix socket. A nil server is one that didn't start.
type metricsServer struct {
	server   http.Server
	listener *net.UnixListener
	done     sync.WaitGroup
}

// serveMetrics listens on the socket, which only its owner may use. Paths other than that of the metrics belong to
// pages.
func serveMetrics(ctx context.Context, socket string, registry *prometheus.Registry, pages http.Handler,
	profile bool,
) (*metricsServer, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, fmt.Errorf("directory of the metrics socket: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("metrics socket of an earlier run: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("metrics socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("metrics socket: %w", err), listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	if profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	m := &metricsServer{
		listener: listener.(*net.UnixListener), server: http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
	}
	m.done.Go(func() {
		// Serve ends with ErrServerClosed when stop closes it; a listener on a unix socket has no other way to fail for good.
		_ = m.server.Serve(listener)
	})
	return m, nil
}

func (m *metricsServer) stop(ctx context.Context) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if m.server.Shutdown(ctx) != nil {
		// A scrape that hangs loses its connection; the daemon doesn't wait for it.
		_ = m.server.Close()
	}
	m.done.Wait()
}
