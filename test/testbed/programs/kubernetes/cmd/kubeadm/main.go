// Command kubeadm is Kubernetes' own, for tests that join a node with it.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { kubeadmerrors.HandleError(app.Run()) }
