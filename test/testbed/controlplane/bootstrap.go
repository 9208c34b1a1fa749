package controlplane

import (
	"context"
	"errors"
	"fmt"
)

// The bootstrap token of the cluster. It is no secret: the cluster is reachable
// from its host only and is gone after the test.
const (
	bootstrapTokenID     = "testbd"
	bootstrapTokenSecret = "0123456789abcdef"
)

// object is an API object as JSON has it.
type object = map[string]any

// allowBootstrap lets a node join with the bootstrap token and get its client
// certificate signed and renewed, as kubeadm arranges it.
func (c *ControlPlane) allowBootstrap(ctx context.Context) error {
	errs := []error{c.Create(ctx, "/api/v1/namespaces/kube-system/secrets", object{
		"metadata": object{"name": "bootstrap-token-" + bootstrapTokenID},
		"type":     "bootstrap.kubernetes.io/token",
		"stringData": object{
			"token-id": bootstrapTokenID, "token-secret": bootstrapTokenSecret,
			"usage-bootstrap-authentication": "true",
		},
	})}
	const csr = "system:certificates.k8s.io:certificatesigningrequests:"
	const rbac = "rbac.authorization.k8s.io"
	for _, binding := range []struct{ name, role, group string }{
		{"testbed:bootstrap", "system:node-bootstrapper", "system:bootstrappers"},
		{"testbed:approve-first", csr + "nodeclient", "system:bootstrappers"},
		{"testbed:approve-renewal", csr + "selfnodeclient", "system:nodes"},
	} {
		errs = append(errs, c.Create(ctx, "/apis/"+rbac+"/v1/clusterrolebindings", object{
			"metadata": object{"name": binding.name},
			"roleRef":  object{"apiGroup": rbac, "kind": "ClusterRole", "name": binding.role},
			"subjects": []object{{"apiGroup": rbac, "kind": "Group", "name": binding.group}},
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("allow nodes to bootstrap: %w", err)
	}
	return nil
}
