package topic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
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

const (
	// maxCSIDriverName and maxCSINodeID are the API's limits (CSINode.spec.drivers).
	maxCSIDriverName = 63
	maxCSINodeID     = 256
	// maxTopology bounds the topology, which is CSI's limit of a map of texts, in bytes.
	maxTopology = 4 << 10
)

// Validate returns an error unless the API server takes what the driver says into a CSINode and the Node's labels. It
// refuses the whole object for one driver whose answer is wrong, so such a driver must be left out. Source: the
// validation of storage.k8s.io/v1 CSINode, and of labels.
func (i CSINodeInfo) Validate() error {
	errs := []error{i.validateNames()}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(i.Topology)) {
		value := i.Topology[key]
		size += len(key) + len(value)
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, fmt.Errorf("the topology key %.80q can't be a label's: %s", key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(value) {
			errs = append(errs, fmt.Errorf("%.80q, the value of the topology key %.80q, can't be a label's: %s", value, key,
				problem))
		}
	}
	if size > maxTopology {
		return fmt.Errorf("the topology has %d bytes in %d keys, the limit is %d", size, len(i.Topology), maxTopology)
	}
	return errors.Join(errs...)
}

func (i CSINodeInfo) validateNames() error {
	switch problems := validation.IsDNS1123Subdomain(strings.ToLower(i.Name)); {
	case len(i.Name) > maxCSIDriverName:
		return fmt.Errorf("the driver's name has %d characters, the limit is %d", len(i.Name), maxCSIDriverName)
	case len(problems) > 0:
		return fmt.Errorf("the driver's name %q is no DNS subdomain: %s", i.Name, problems[0])
	case i.NodeID == "":
		return errors.New("the node ID is empty")
	case len(i.NodeID) > maxCSINodeID:
		return fmt.Errorf("the node ID has %d bytes, the limit is %d", len(i.NodeID), maxCSINodeID)
	}
	return identifier("node ID", i.NodeID)
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
		errs = append(errs, text("name", name)) // any text: one volume's must not keep the others from the Node
	}
	return errors.Join(errs...)
}
