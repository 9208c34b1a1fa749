package kube

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Claims are the calls about devices that pods claim (dynamic resource allocation), by the connections of a Client.
type Claims struct{ client rest.Interface }

// ClaimsOf is the Claims of a client.
func ClaimsOf(c *Client) (Claims, error) {
	client, err := c.rest(resourceGroup)
	return Claims{client}, err
}

// GetResourceClaim reads a claim. A node may read those of its own pods by their names.
func (c Claims) GetResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	claims := Resource[resourcev1.ResourceClaim, *resourcev1.ResourceClaim]{
		client: c.client, name: "resourceclaims", namespace: namespace,
	}
	return claims.Get(ctx, name, metav1.GetOptions{})
}

// DeleteResourceSlices deletes the ResourceSlices that the field selector selects. A node may delete its own.
func (c Claims) DeleteResourceSlices(ctx context.Context, fieldSelector string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	slices := Resource[resourcev1.ResourceSlice, *resourcev1.ResourceSlice]{client: c.client, name: "resourceslices"}
	return slices.deleteAll(ctx, metav1.ListOptions{FieldSelector: fieldSelector})
}
