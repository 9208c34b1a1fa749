package agent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/deviceplugin"
)

// toy is the kind of the devices.
const toy corev1.ResourceName = "bench.test/toy"

// Devices measures n pods at once that have a device each, and as many that have none, twice each: the ratio of their
// sums says what the devices cost.
func (b *Bench) Devices(ctx context.Context, n int) (f measure.Figures, err error) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	defer func() {
		stop()
		<-ended
	}()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("toy-%d", i)
	}
	plugin := deviceplugin.New(b.DevicePlugins, string(toy), ids...)
	go func() {
		defer close(ended)
		plugin.Run(ctx, func(err error) { b.Say("%v", err) })
	}()
	if err := until(ctx, "the Node has the devices", func() (bool, error) {
		node, err := b.Client.CoreV1().Nodes().Get(ctx, b.Node, metav1.GetOptions{})
		return err == nil && node.Status.Allocatable.Name(toy, resource.DecimalSI).Value() == int64(n), err
	}); err != nil {
		return nil, err
	}
	var with, without measure.Sample
	for i, has := range []bool{false, true, true, false} {
		shape, times, what := func(*corev1.Pod) {}, &without, "no device"
		if has {
			shape, times, what = withToy, &with, "a device each"
		}
		b.Say("%d pods at once, with %s", n, what)
		names, starts, err := b.startAll(ctx, fmt.Sprintf("devices%d", i), n, shape)
		if err != nil {
			return nil, err
		}
		*times = append(*times, slices.Max(starts))
		if _, err := b.stopAll(ctx, names); err != nil {
			return nil, err
		}
	}
	f = measure.Figures{
		"devices.with":    (with[0] + with[1]).Seconds() / 2,
		"devices.without": (without[0] + without[1]).Seconds() / 2,
	}
	f["devices.ratio"] = f["devices.with"] / f["devices.without"]
	return f, nil
}

func withToy(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{toy: resource.MustParse("1")}
}
