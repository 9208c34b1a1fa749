package criconfig

import (
	"fmt"
	"path/filepath"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// devices lists the block devices of the container's volumes, after those of device plugins.
func devices(in ContainerInput) ([]*runtimeapi.Device, error) {
	out := slices.Clone(in.Devices)
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
