package daemon

import (
	"bytes"
	"context"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"kubelot.dev/daemon/sleep"
)

// sleeper lets the daemon sleep.
func (p *place) sleeper(ctx context.Context, name string, env Env, metrics *metricsServer) *sleep.Sleeper {
	h, ok := env.Health.(*health)
	if !ok {
		return nil
	}
	return sleep.New(p.config.RunDir, name, p.connections, sleep.Chassis{
		Leave: func(why string) ([]byte, *net.UnixListener, error) {
			h.sleep(why)
			flushed, cancel := context.WithTimeout(ctx, flushTimeout)
			defer cancel()
			// Who doesn't hear that the daemon sleeps takes it for one that hangs.
			err := env.Bus.Flush(flushed)
			page, unreadable := metricsPage(env.Metrics)
			return page, metrics.listener, errors.Join(err, unreadable)
		},
		Return: h.awake,
	}, p.log)
}

// metricsPage is what the metrics' socket serves.
func metricsPage(from prometheus.Gatherer) ([]byte, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	encoder := expfmt.NewEncoder(&page, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		err = errors.Join(err, encoder.Encode(family))
	}
	return page.Bytes(), err
}
