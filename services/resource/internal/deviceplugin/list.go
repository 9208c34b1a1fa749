package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/services/resource/internal/devices"
)

const (
	// maxID bounds the length of a device's name.
	maxID = 1024
	// maxNode is the highest NUMA node that Linux knows.
	maxNode = 1023
	// gather is the least pause between two lists of a plugin, in case one sends them without end.
	gather = 20 * time.Millisecond
)

// watch reports the plugin's devices until it is gone. The error says why it is.
func (s *Server) watch(ctx context.Context, p *plugin) error {
	stream, err := p.api.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return p.lost(ctx, err)
	}
	var last []devices.Device
	problem := ""
	for first := true; ; first = false {
		message, err := stream.Recv()
		if err != nil {
			return p.lost(ctx, err)
		}
		list, strange := judge(message.GetDevices())
		if strange != "" && strange != problem {
			s.ports.Log.Warn("ignoring devices of a device plugin", "resource", p.resource, "error", strange)
		}
		problem = strange
		if first || !reflect.DeepEqual(last, list) {
			last = list
			s.ports.Report(ctx, Report{Resource: p.resource, Devices: list})
		}
		pause.For(ctx, gather)
	}
}

// lost is why the stream has ended.
func (p *plugin) lost(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("it has ended the list of its devices (ListAndWatch)")
	}
	return fmt.Errorf("it lists its devices no longer (ListAndWatch): %s", line(err.Error()))
}

// judge makes devices of what a plugin lists, in the order of their IDs. What can't be one is left out, and strange
// says why. How many there are is bounded by maxAnswer alone, as with the kubelet: there are plugins that have a device
// for each MiB of a memory.
func judge(message []*pluginapi.Device) (list []devices.Device, strange string) {
	byID := make(map[string]devices.Device, len(message))
	for _, d := range message {
		id := d.GetID()
		if id == "" || len(id) > maxID {
			strange = fmt.Sprintf("the ID of a device has %d characters: it must have 1 to %d", len(id), maxID)
			continue
		}
		own := devices.Device{ID: id, Healthy: d.GetHealth() == pluginapi.Healthy}
		for _, node := range d.GetTopology().GetNodes() {
			if n := node.GetID(); n >= 0 && n <= maxNode {
				own.Nodes = append(own.Nodes, int(n))
			} else {
				strange = fmt.Sprintf("the device %q is near to NUMA node %d, which can't be", line(id), n)
			}
		}
		slices.Sort(own.Nodes)
		own.Nodes = slices.Compact(own.Nodes)
		byID[id] = own
	}
	list = make([]devices.Device, 0, len(byID))
	for _, d := range byID {
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y devices.Device) int { return strings.Compare(x.ID, y.ID) })
	return list, strange
}
