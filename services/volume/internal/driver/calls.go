package driver

import (
	"context"
	"path"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

func newOperations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "How long CSI drivers took for each call, by its gRPC code.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
}

// Metrics are those of the calls to all drivers, the kubelet's.
func (d *Drivers) Metrics() prometheus.Collector { return d.operations }

// watch measures the calls to a driver, and tells of each for whom it is made.
func (d *Drivers) watch(name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		began := time.Now()
		ended, migrated := plugin.Call(ctx, topic.DriverCall{Driver: name, Call: path.Base(method), Since: began})
		err := invoke(ctx, method, req, reply, conn, options...)
		d.operations.WithLabelValues(name, method, status.Code(err).String(), strconv.FormatBool(migrated)).
			Observe(time.Since(began).Seconds())
		ended()
		return err
	}
}
