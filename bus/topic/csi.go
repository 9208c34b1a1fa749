package topic

import (
	"errors"
	"fmt"
	"strings"
)

// CSIDriverKey is the key of csi.driver. A name's dots become colons, which no driver's name has.
func CSIDriverKey(name string) string { return strings.ReplaceAll(name, ".", ":") }

// CSINodeInfo is the payload of csi.driver: what a registered CSI driver says of this node (NodeGetInfo). The tombstone
// says that the driver is no longer registered.
type CSINodeInfo struct {
	Name string `json:"name"`
	// NodeID is the driver's name of the node.
	NodeID string `json:"nodeID"`
	// Topology is where the node is, in the driver's terms; the keys are those of labels.
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes is how many volumes of the driver the node can have; 0 means that there is no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
}

func checkCSINodeInfo(key string, info CSINodeInfo) error {
	if key != CSIDriverKey(info.Name) {
		return fmt.Errorf("it is about the driver %.80q", info.Name)
	}
	errs := []error{identifier("name", info.Name), identifier("nodeID", info.NodeID)}
	for name, value := range info.Topology {
		errs = append(errs, identifier("topology key", name), identifier("topology value", name+"="+value))
	}
	return errors.Join(errs...)
}

// VolumesInUse is the payload of csi.volumes: the volumes that this node has or is about to have, as they stand in the
// Node's status.volumesInUse. It is published once all that is on disk has been read.
type VolumesInUse struct {
	// Names are those of volumes that must be attached, sorted. A name is "kubernetes.io/csi/<driver>^<handle>".
	Names []string `json:"names,omitempty"`
}

func checkVolumesInUse(_ string, v VolumesInUse) error {
	errs := make([]error, 0, len(v.Names))
	for _, name := range v.Names {
		errs = append(errs, identifier("name", name))
	}
	return errors.Join(errs...)
}
