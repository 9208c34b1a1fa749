package tools

import (
	"context"
	"fmt"
)

// Sidecar is a program of Kubernetes that acts on a CSI driver's controller for the API's objects.
type Sidecar string

// The sidecars of a driver.
const (
	Attacher    Sidecar = "csi-attacher"
	Provisioner Sidecar = "csi-provisioner"
	Resizer     Sidecar = "csi-resizer"
)

// CSISidecar builds a sidecar on demand, and returns its path with the arguments for the driver at that socket.
func (b *Box) CSISidecar(ctx context.Context, s Sidecar, socket, kubeconfig string) (string, []string, error) {
	args := []string{
		"--csi-address=unix://" + socket, "--kubeconfig=" + kubeconfig, "--kube-api-qps=100", "--kube-api-burst=200",
		// A wait of minutes after a few failures would be most of a test.
		"--retry-interval-max=10s",
	}
	switch s {
	case Attacher:
	case Provisioner:
		// Without a type, a volume's files aren't given to an fsGroup by default. ext4 grows in use only by
		// CAP_SYS_RESOURCE, which root may lack.
		args = append(args, "--default-fstype=xfs")
	case Resizer:
		// It is for drivers that can't let a volume grow while it is in use.
		args = append(args, "--handle-volume-inuse-error=false")
	default:
		return "", nil, fmt.Errorf("there is no sidecar %q", s)
	}
	path, err := b.onDemand(ctx, b.sidecar(s))
	return path, args, err
}

// sidecar is the program of a sidecar. They share a module: each with the libraries of its own release would take
// minutes more to build.
func (b *Box) sidecar(s Sidecar) build {
	return b.released(string(s), "sidecars", "github.com/kubernetes-csi/"+map[Sidecar]string{
		Attacher:    "external-attacher/v4/cmd/csi-attacher",
		Provisioner: "external-provisioner/v6/cmd/csi-provisioner",
		Resizer:     "external-resizer/v2/cmd/csi-resizer",
	}[s])
}
