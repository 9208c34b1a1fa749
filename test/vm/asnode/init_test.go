package asnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/test/testbed/kubeadm"
	"kubelot.dev/test/testbed/tools"
	"kubelot.dev/test/vm/guest"
)

// initConfig has no addons: their images can't be built here. The time limits are for an emulated machine: a controller
// manager or scheduler that can't renew its lease in time would end.
const initConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  kubeletExtraArgs: [{name: node-labels, value: example.org/by=kubeadm}]
timeouts: {kubeletHealthCheck: 20m, controlPlaneComponentHealthCheck: 30m, kubernetesAPICall: 30m}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
dns: {disabled: true}
proxy: {disabled: true}
controllerManager:
  extraArgs:
  - {name: leader-elect-lease-duration, value: 5m}
  - {name: leader-elect-renew-deadline, value: 4m}
  - {name: node-monitor-grace-period, value: 30m}
scheduler:
  extraArgs:
  - {name: leader-elect-lease-duration, value: 5m}
  - {name: leader-elect-renew-deadline, value: 4m}
`

// TestInit has kubeadm make a cluster of one node, whose control plane are static pods that kubelot runs.
func TestInit(t *testing.T) {
	runtimeByPage(t)
	follow(t, commands(t, kubeadmNode)[3])
	importImages(t, images136)
	write(t, "/root/init.yaml", fmt.Sprintf(initConfig, tools.KubernetesVersion))
	t.Log(in(t, "kubeadm init --config /root/init.yaml 2>&1"))
	network(t)
	// The API server shares the machine's processors with all that starts there, and may be too slow for kubectl.
	const command = "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	kubectl := func(args string) (out string) {
		t.Helper()
		eventually(t, "kubectl "+args, func(ctx context.Context) (err error) {
			out, err = node.Machine.Run(ctx, command+args)
			return err
		})
		return strings.TrimSpace(out)
	}
	// kubectl's own limit, which it needs for a wait.
	const patience = " --timeout=25m "
	kubectl("wait node --all --for=condition=Ready" + patience)
	// A wait for pods that aren't there yet fails at once.
	eventually(t, "the control plane's pods at the API server", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, command+"get pods -n kube-system -o name")
		for _, name := range kubeadm.StaticPods {
			if err == nil && !slices.Contains(strings.Fields(out), "pod/"+name+"-"+guest.Name) {
				err = fmt.Errorf("there is no pod of %s: %s", name, out)
			}
		}
		return err
	})
	kubectl("wait pod --all -n kube-system --for=condition=Ready" + patience)
	// The flag that kubeadm has written into kubeadm-flags.env.
	if out := kubectl("get nodes -l example.org/by=kubeadm -o name"); out != "node/"+guest.Name {
		t.Errorf("the nodes with the label of kubeletExtraArgs are %q", out)
	}
	// kubeadm says so where it finds that the client certificate is renewed.
	if text := in(t, "cat /etc/kubernetes/kubelet.conf"); !strings.Contains(text,
		"client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem") {
		t.Errorf("kubelet.conf has no client certificate that is renewed:\n%s", text)
	}
	kubectl("taint nodes --all node-role.kubernetes.io/control-plane-")
	write(t, "/root/alone.yaml", fmt.Sprintf(another, "alone"))
	kubectl("apply -f /root/alone.yaml") // the service account's controller needs its time
	kubectl("wait pod/alone --for=condition=Ready" + patience)

	before := in(t, "ctr -n k8s.io tasks list | sort")
	in(t, "systemctl restart kubelet")
	daemons(t)
	kubectl("wait node --all --for=condition=Ready" + patience)
	if after := in(t, "ctr -n k8s.io tasks list | sort"); after != before {
		t.Errorf("with a restart of the kubelet, the containers changed from\n%s\nto\n%s", before, after)
	}
	// See drain. Those of the control plane are on the host's network, which is never taken down.
	kubectl("delete pod alone --ignore-not-found" + patience)
	reset(t)
	nothingIsLeft(t)
}
