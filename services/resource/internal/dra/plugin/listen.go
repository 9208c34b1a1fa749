package plugin

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/services/resource/internal/dra/health"
)

const (
	// listenAgain is the pause before a plugin that has stopped reporting is listened to again.
	listenAgain = 5 * time.Second
	// gather is the least pause between two reports of a plugin that are taken.
	gather = 100 * time.Millisecond
)

// listen passes on what the plugin reports of its devices. One that has no such service isn't asked again.
func (d *Drivers) listen(ctx context.Context, c *Client) {
	for said := ""; ctx.Err() == nil; pause.For(ctx, listenAgain) {
		err := d.reports(ctx, c)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := line(err.Error()); text != said {
			said = text
			d.ports.Log.Info("a DRA driver has stopped reporting the health of devices, retrying", "driver", c.driver,
				"endpoint", c.at.Endpoint, "error", text)
		}
	}
}

// speaks notes that the plugin has reported, and reports whether it is the one to be believed: those of a driver that
// are being replaced are not, once their successor has reported.
func (d *Drivers) speaks(c *Client) bool {
	c.reports = true
	for _, other := range d.clients[c.driver] {
		if other == c {
			return true
		}
		if other.connected && other.reports {
			return false
		}
	}
	return false
}

// reports reads one stream to its end. Each message has all devices of the driver.
func (d *Drivers) reports(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := healthv1alpha1.NewDRAResourceHealthClient(c.conn).NodeWatchResources(ctx,
		&healthv1alpha1.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		list := reportsOf(message)
		d.ports.Owner.Do(ctx, func() {
			if d.speaks(c) {
				d.ports.Health(c.driver, list)
			}
		})
		pause.For(ctx, gather)
	}
}

func reportsOf(message *healthv1alpha1.NodeWatchResourcesResponse) []health.Report {
	var list []health.Report
	for _, d := range message.GetDevices() {
		pool, name := d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()
		if len(pool) > maxName || len(name) > maxName {
			continue
		}
		list = append(list, health.Report{
			Key: health.Key{Pool: pool, Device: name}, Status: statusOf(d.GetHealth()), Message: d.GetMessage(),
			Seconds: d.GetHealthCheckTimeoutSeconds(),
		})
	}
	return list
}

func statusOf(s healthv1alpha1.HealthStatus) corev1.ResourceHealthStatus {
	switch s {
	case healthv1alpha1.HealthStatus_HEALTHY:
		return corev1.ResourceHealthStatusHealthy
	case healthv1alpha1.HealthStatus_UNHEALTHY:
		return corev1.ResourceHealthStatusUnhealthy
	}
	return corev1.ResourceHealthStatusUnknown
}
