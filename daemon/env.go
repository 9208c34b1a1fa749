package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// flushTimeout bounds the wait for the bus at the end. A daemon that stops while the bus is away must not delay its
// successor.
const flushTimeout = 2 * time.Second

// NewEnv builds what a daemon's Run gets, on any bus connection: tests give one of bustest. conn is
// nil for a daemon without a bus. Run it with RunWith, which starts and ends the health reports.
func NewEnv(spec Spec, c *config.Config, conn *bus.Conn, log *slog.Logger) Env {
	env := newEnv(spec, conn, &unit{log: log}, log)
	env.Config = c
	env.Metrics.MustRegister(ofProcess()...)
	return env
}

// newEnv is NewEnv without what daemons of one process share.
func newEnv(spec Spec, conn *bus.Conn, above supervisor, log *slog.Logger) Env {
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo(spec.Name))
	pulse := &Pulse{}
	own := newHealth(conn, pulse, above, log)
	registry.MustRegister(newHealthMetrics(spec.Name, own))
	return Env{
		Bus:     conn,
		Log:     log,
		Metrics: registry,
		Pages:   http.NewServeMux(),
		Health:  own,
		Pulse:   pulse,
		Reloads: &Reloads{},
		Events:  newEvents(conn, log),
	}
}

// RunWith runs the daemon in an environment of NewEnv: health is reported all the while, and when Run
// has returned, Stopped is, and everything on the way to the bus is sent.
func RunWith(ctx context.Context, spec Spec, env Env) error {
	h, ok := env.Health.(*health)
	if !ok {
		return spec.Run(ctx, env)
	}
	beatCtx, endBeat := context.WithCancel(context.WithoutCancel(ctx))
	var beat sync.WaitGroup
	beat.Go(func() { h.run(beatCtx) })
	if !spec.WithoutBus {
		h.Set(topic.Healthy, "")
	}
	stopNotice := context.AfterFunc(ctx, h.above.stopping)
	err := spec.Run(ctx, env)
	stopNotice()
	h.finish(err)
	if env.Bus != nil {
		flush(context.WithoutCancel(ctx), env)
	}
	endBeat()
	beat.Wait()
	return err
}

func flush(ctx context.Context, env Env) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := env.Bus.Flush(ctx); err != nil {
		env.Log.Warn("the bus is unreachable, the last messages were not sent; the daemon sends them after its next start",
			"error", err)
	}
}

// ofProcess are the metrics of a process.
func ofProcess() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

func buildInfo(name string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kubelot_build_info",
		Help:        "Always 1; the labels say which daemon in which version this is.",
		ConstLabels: prometheus.Labels{"daemon": name, "version": Version()},
	})
	info.Set(1)
	return info
}
