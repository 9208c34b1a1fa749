package controlplane

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The bootstrap token of the cluster. It is no secret: the cluster is reachable
// from its host only and is gone after the test.
const (
	bootstrapTokenID     = "testbd"
	bootstrapTokenSecret = "0123456789abcdef"
)

// allowBootstrap lets a node join with the bootstrap token and get its client
// certificate signed and renewed, as kubeadm arranges it.
func (c *ControlPlane) allowBootstrap(ctx context.Context) error {
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + bootstrapTokenID},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": bootstrapTokenID, "token-secret": bootstrapTokenSecret,
			"usage-bootstrap-authentication": "true",
		},
	}
	_, err := c.client.CoreV1().Secrets(token.Namespace).Create(ctx, token, metav1.CreateOptions{})
	errs := []error{ignoreExists(err)}
	const csr = "system:certificates.k8s.io:certificatesigningrequests:"
	for _, binding := range []struct{ name, role, group string }{
		{"testbed:bootstrap", "system:node-bootstrapper", "system:bootstrappers"},
		{"testbed:approve-first", csr + "nodeclient", "system:bootstrappers"},
		{"testbed:approve-renewal", csr + "selfnodeclient", "system:nodes"},
	} {
		_, err := c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: binding.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: binding.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: binding.group}},
		}, metav1.CreateOptions{})
		errs = append(errs, ignoreExists(err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("allow nodes to bootstrap: %w", err)
	}
	return nil
}
