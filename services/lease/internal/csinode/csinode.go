// Package csinode keeps the CSINode of a node: which CSI drivers the node has, how each names it, where it is for them,
// and how many volumes it can have.
//
// # Reads and writes
//
// The CSINode at the API server, of which the node agent is the only writer.
//
// # Guarantees
//
//   - A CSINode that another Node of the same name has left is removed and made again.
//   - A driver of which nobody has spoken yet stays as it is, until the caller says that it is gone.
package csinode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// API is what is needed of the API server.
type API interface {
	GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error)
	CreateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error)
	UpdateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error)
	DeleteCSINode(ctx context.Context, name string, uid types.UID) error
}

// Wanted is what the CSINode is to say.
type Wanted struct {
	// Node is the name of the node, UID that of its Node.
	Node string
	UID  types.UID
	// Drivers are the node's, by their names.
	Drivers map[string]topic.CSINodeInfo
	// Keeps reports whether a driver that isn't among them stays as it is.
	Keeps func(driver string) bool
}

// migrated are the kinds of volumes that are a CSI driver's by now. The attach-detach controller and the scheduler read
// there that this node has them so.
const (
	migratedKey = "storage.alpha.kubernetes.io/migrated-plugins"
	migrated    = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
		"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
)

// errAnothers is why a CSINode can't be used.
var errAnothers = errors.New("it belongs to another Node of this name")

// Reconcile makes the CSINode say what is wanted.
func Reconcile(ctx context.Context, api API, w Wanted) error {
	current, err := api.GetCSINode(ctx, w.Node)
	if apierrors.IsNotFound(err) {
		current, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("read CSINode %s: %w", w.Node, err)
	}
	next, err := plan(current, w)
	switch {
	case errors.Is(err, errAnothers):
		if err := api.DeleteCSINode(ctx, w.Node, current.UID); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CSINode %s, because %w: %w", w.Node, errAnothers, err)
		}
		if next, err = plan(nil, w); err != nil {
			return err
		}
		_, err = api.CreateCSINode(ctx, next)
	case next == nil:
		return nil
	case current == nil:
		_, err = api.CreateCSINode(ctx, next)
	default:
		err = update(ctx, api, current, next)
	}
	if err != nil {
		return fmt.Errorf("write CSINode %s: %w", w.Node, err)
	}
	return nil
}

// update writes the CSINode. The API server lets nobody change a driver's node ID and topology keys: a driver that says
// something else than before is removed first, as if it had been unregistered in between.
func update(ctx context.Context, api API, current, next *storagev1.CSINode) error {
	before := map[string]storagev1.CSINodeDriver{}
	for _, d := range current.Spec.Drivers {
		before[d.Name] = d
	}
	first := next.DeepCopy()
	first.Spec.Drivers = slices.DeleteFunc(first.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		old, there := before[d.Name]
		return there && (old.NodeID != d.NodeID || !slices.Equal(old.TopologyKeys, d.TopologyKeys))
	})
	if len(first.Spec.Drivers) < len(next.Spec.Drivers) {
		written, err := api.UpdateCSINode(ctx, first)
		if err != nil {
			return err
		}
		next.ResourceVersion = written.ResourceVersion
	}
	_, err := api.UpdateCSINode(ctx, next)
	return err
}

// plan is the CSINode that is to be written; nil where the current one is right.
func plan(current *storagev1.CSINode, w Wanted) (*storagev1.CSINode, error) {
	owner := metav1.OwnerReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: w.Node, UID: w.UID,
	}
	next := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: w.Node, OwnerReferences: []metav1.OwnerReference{owner},
	}}
	if current != nil {
		if slices.ContainsFunc(current.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == owner.Kind && o.Name == owner.Name && o.UID != owner.UID
		}) {
			return nil, errAnothers
		}
		next = current.DeepCopy()
		if !slices.Contains(next.OwnerReferences, owner) {
			next.OwnerReferences = append(next.OwnerReferences, owner)
		}
		next.Spec.Drivers = nil
		for _, d := range current.Spec.Drivers {
			if _, told := w.Drivers[d.Name]; !told && w.Keeps(d.Name) {
				next.Spec.Drivers = append(next.Spec.Drivers, d)
			}
		}
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, migratedKey, migrated)
	for _, info := range w.Drivers {
		next.Spec.Drivers = append(next.Spec.Drivers, driver(info))
	}
	if next.Spec.Drivers == nil {
		next.Spec.Drivers = []storagev1.CSINodeDriver{} // the API refuses null
	}
	byName := func(a, b storagev1.CSINodeDriver) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(next.Spec.Drivers, byName)
	if current != nil {
		before := slices.SortedFunc(slices.Values(current.Spec.Drivers), byName)
		if equality.Semantic.DeepEqual(before, next.Spec.Drivers) &&
			len(next.OwnerReferences) == len(current.OwnerReferences) && current.Annotations[migratedKey] == migrated {
			return nil, nil //nolint:nilnil // nothing is to be written
		}
	}
	return next, nil
}

// driver is what the CSINode says of a driver. The API's count is one of 32 bits.
func driver(info topic.CSINodeInfo) storagev1.CSINodeDriver {
	d := storagev1.CSINodeDriver{
		Name: info.Name, NodeID: info.NodeID, TopologyKeys: slices.Sorted(maps.Keys(info.Topology)),
	}
	if info.MaxVolumes > 0 {
		count := int32(min(info.MaxVolumes, math.MaxInt32))
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return d
}
