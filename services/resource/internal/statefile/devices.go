package statefile

import (
	"encoding/json"

	"kubelot.dev/services/resource/internal/statefile/internal/checkpoint"
)

// Devices is the device manager's state.
type Devices struct {
	Entries []DeviceEntry
	// Registered are the healthy devices of each resource.
	Registered map[string][]string
}

// DeviceEntry is what a container has of a resource.
type DeviceEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	// DeviceIDs are the devices by their NUMA nodes; -1 is for those without a topology.
	DeviceIDs map[int64][]string
	// AllocResp is the plugin's answer (v1beta1.ContainerAllocateResponse) in protobuf's encoding.
	AllocResp []byte
}

// ReadDevices reads the device manager's file.
func ReadDevices(path string) (Devices, error) { return read(path, devicesOf) }

// WriteDevices replaces the device manager's file.
func WriteDevices(path string, d Devices) error {
	data, err := devicesFile(d)
	return write(path, data, err)
}

// devicesOf reads the content of the device manager's file. It has to have its sum, other than the other files.
func devicesOf(data []byte) (Devices, error) {
	var file checkpoint.Data
	if err := parse(data, &file); err != nil {
		return Devices{}, err
	}
	if err := verify(file.Checksum, file.Sum()); err != nil {
		return Devices{}, err
	}
	d := Devices{Registered: file.Data.RegisteredDevices}
	for _, e := range file.Data.PodDeviceEntries {
		d.Entries = append(d.Entries, DeviceEntry{
			PodUID: e.PodUID, ContainerName: e.ContainerName, ResourceName: e.ResourceName,
			DeviceIDs: e.DeviceIDs, AllocResp: e.AllocResp,
		})
	}
	return d, nil
}

// devicesFile is the content of the device manager's file.
func devicesFile(d Devices) ([]byte, error) {
	var file, final checkpoint.Data
	file.Data.PodDeviceEntries = []checkpoint.PodDevicesEntry{}
	file.Data.RegisteredDevices = d.Registered
	if d.Registered == nil {
		file.Data.RegisteredDevices = map[string][]string{}
	}
	for _, e := range d.Entries {
		file.Data.PodDeviceEntries = append(file.Data.PodDeviceEntries, checkpoint.PodDevicesEntry{
			PodUID: e.PodUID, ContainerName: e.ContainerName, ResourceName: e.ResourceName,
			DeviceIDs: e.DeviceIDs, AllocResp: e.AllocResp,
		})
	}
	if err := reread(&file, &final); err != nil {
		return nil, err
	}
	final.Checksum = final.Sum()
	return json.Marshal(final)
}
