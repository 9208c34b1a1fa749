package criconfig

import (
	"cmp"
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

// devices lists the block devices of the container's volumes, after those of device plugins.
func devices(in ContainerInput) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for _, node := range in.Alone.DeviceNodes {
		out = append(out, &runtimeapi.Device{
			HostPath: node.HostPath, ContainerPath: node.ContainerPath, Permissions: node.Permissions,
		})
	}
	for _, device := range in.Container.VolumeDevices {
		if !filepath.IsAbs(device.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", device.DevicePath)
		}
		volume, ok := in.Volumes[device.Name]
		if !ok || volume.Device == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", device.Name, in.Container.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{
			HostPath: volume.Device, ContainerPath: device.DevicePath,
			Permissions: permissions,
		})
	}
	return out, nil
}

// CPUs is the list of CPUs that a container may run on: its own, else those that are shared. Empty means all.
func CPUs(alone topic.ContainerAllocation, shared string) string { return cmp.Or(alone.CPUs, shared) }

// cdiDevices are the devices that the runtime adds by their names (Container Device Interface).
func cdiDevices(alone topic.ContainerAllocation) []*runtimeapi.CDIDevice {
	var out []*runtimeapi.CDIDevice
	for _, name := range alone.CDI {
		out = append(out, &runtimeapi.CDIDevice{Name: name})
	}
	return out
}

// Env is the environment of a container: what plugins give it, and then its own, which counts where both have a name.
func Env(alone topic.ContainerAllocation, own []*runtimeapi.KeyValue) []*runtimeapi.KeyValue {
	if len(alone.Env) == 0 {
		return own
	}
	out := make([]*runtimeapi.KeyValue, 0, len(alone.Env)+len(own))
	for _, e := range alone.Env {
		out = append(out, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return append(out, own...)
}
