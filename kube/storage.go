package kube

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (c *Client) csiNodes() Resource[storagev1.CSINode, *storagev1.CSINode] {
	return Resource[storagev1.CSINode, *storagev1.CSINode]{client: c.storage, name: "csinodes"}
}

// GetCSINode reads the CSINode of a node. A node may read its own.
func (c *Client) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.csiNodes().Get(ctx, name, metav1.GetOptions{})
}

// CreateCSINode creates the CSINode of a node.
func (c *Client) CreateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.csiNodes().Create(ctx, n, metav1.CreateOptions{})
}

// UpdateCSINode writes a CSINode; it fails with a conflict where somebody else wrote it since it was read.
func (c *Client) UpdateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.csiNodes().Update(ctx, n, metav1.UpdateOptions{})
}

// DeleteCSINode removes a CSINode, if it is still the one with that UID.
func (c *Client) DeleteCSINode(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.csiNodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// GetVolumeAttachment reads what is known of the attachment of a volume to a node. A node may read those of its own
// volumes by their names, and may not list or watch them.
func (c *Client) GetVolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	attachments := Resource[storagev1.VolumeAttachment, *storagev1.VolumeAttachment]{
		client: c.storage, name: "volumeattachments",
	}
	return attachments.Get(ctx, name, metav1.GetOptions{})
}
