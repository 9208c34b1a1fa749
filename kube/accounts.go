package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceAccounts reads service accounts, and asks for their tokens. A node may read those of its pods, and may not
// watch them.
type ServiceAccounts struct{ *Client }

// GetServiceAccount reads a service account.
func (s ServiceAccounts) GetServiceAccount(ctx context.Context, namespace,
	name string,
) (*corev1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	type accounts = Resource[corev1.ServiceAccount, *corev1.ServiceAccount]
	return accounts{s.core, "serviceaccounts", namespace}.Get(ctx, name, metav1.GetOptions{})
}
