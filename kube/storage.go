package kube

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Storage are the calls about volumes and their drivers, by the connections of a Client.
type Storage struct{ client rest.Interface }

// StorageOf is the Storage of a client.
func StorageOf(c *Client) Storage { return Storage{c.storage} }

func (s Storage) csiNodes() Resource[storagev1.CSINode, *storagev1.CSINode] {
	return Resource[storagev1.CSINode, *storagev1.CSINode]{client: s.client, name: "csinodes"}
}

// GetCSINode reads the CSINode of a node. A node may read its own.
func (s Storage) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.csiNodes().Get(ctx, name, metav1.GetOptions{})
}

// CreateCSINode creates the CSINode of a node.
func (s Storage) CreateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.csiNodes().Create(ctx, n, metav1.CreateOptions{})
}

// UpdateCSINode writes a CSINode; it fails with a conflict where somebody else wrote it since it was read.
func (s Storage) UpdateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.csiNodes().Update(ctx, n, metav1.UpdateOptions{})
}

// DeleteCSINode removes a CSINode, if it is still the one with that UID.
func (s Storage) DeleteCSINode(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.csiNodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// GetVolumeAttachment reads what is known of the attachment of a volume to a node. A node may read those of its own
// volumes by their names, and may not list or watch them.
func (s Storage) GetVolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	attachments := Resource[storagev1.VolumeAttachment, *storagev1.VolumeAttachment]{
		client: s.client, name: "volumeattachments",
	}
	return attachments.Get(ctx, name, metav1.GetOptions{})
}
