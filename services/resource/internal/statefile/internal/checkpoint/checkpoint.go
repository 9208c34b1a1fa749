// Package checkpoint has the content of the device manager's state file. Names of types and fields, and the order of
// fields, are the kubelet's, since the file's sum depends on them (package checksum).
package checkpoint

import "kubelot.dev/services/resource/internal/statefile/internal/checksum"

// DevicesPerNUMA are IDs of devices by NUMA node.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is what a container has of a resource.
type PodDevicesEntry struct {
	PodUID        string         `json:"PodUID"`
	ContainerName string         `json:"ContainerName"`
	ResourceName  string         `json:"ResourceName"`
	DeviceIDs     DevicesPerNUMA `json:"DeviceIDs"`
	AllocResp     []byte         `json:"AllocResp"`
}

// checkpointData is not exported because the kubelet's isn't: the sum is of this type's name.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry   `json:"PodDeviceEntries"`
	RegisteredDevices map[string][]string `json:"RegisteredDevices"`
}

// Data is the file.
type Data struct {
	Data     checkpointData    `json:"Data"`
	Checksum checksum.Checksum `json:"Checksum"`
}

// Sum is the sum of the data.
func (d *Data) Sum() checksum.Checksum { return checksum.Of(d.Data) }
