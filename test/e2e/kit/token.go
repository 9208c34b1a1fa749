package kit

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is one of an account of the namespace, which is bound to the role of those who may use a kubelet's API.
func (n *Namespace) Token(account string) string {
	n.t.Helper()
	client := n.bed.Client
	n.Kubectl("create", "clusterrolebinding", n.Name, "--clusterrole=system:kubelet-api-admin",
		"--serviceaccount="+n.Name+":"+account)
	n.t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(n.t.Context()), n.Name,
			metav1.DeleteOptions{})
	})
	made, err := client.CoreV1().ServiceAccounts(n.Name).CreateToken(n.t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return made.Status.Token
}
