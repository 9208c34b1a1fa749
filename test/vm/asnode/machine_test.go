package asnode

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/kubeadm"
	"kubelot.dev/test/vm/guest"
	"kubelot.dev/test/vm/machine"
	"kubelot.dev/test/vm/page"
)

// in runs a command in the machine and returns its output without white space around it.
func in(t testing.TB, command string) string {
	t.Helper()
	out, err := node.Machine.Run(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func eventually(t testing.TB, what string, done func(context.Context) error) {
	t.Helper()
	if err := node.Eventually(t.Context(), what, done); err != nil {
		t.Fatal(err)
	}
}

// write makes a file in the machine.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := node.Machine.Write(t.Context(), path, 0o644, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// prepareMachine installs what comes with kubeadm, and has apt know Debian's packages, which it can't fetch here.
func prepareMachine(ctx context.Context) error {
	_, err := node.Machine.Run(ctx, `set -e
ln -sf /payload/bin/kubeadm /usr/bin/kubeadm
ln -sf /payload/bin/k8s-testbed /usr/bin/kubectl
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/payload/debian ./' >/etc/apt/sources.list.d/payload.list
apt-get update -q`)
	if err != nil {
		return err
	}
	const dropIn = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
	return node.Machine.Write(ctx, dropIn, 0o644, []byte(kubeadm.DropIn))
}

// fresh makes the machine one that a reader of the install page begins with, without a container runtime, and again at
// the test's end. What a test leaves is removed.
func fresh(t *testing.T) {
	t.Helper()
	if out, err := node.Machine.Run(t.Context(), "apt-get purge -q -y "+strings.Join(fromDebian, " ")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	in(t, "rm -rf /etc/containerd /etc/cni /opt/cni /etc/sysctl.d/90-kubernetes.conf && sysctl -qw net.ipv4.ip_forward=0")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			t.Log(node.Journal(150))
		}
		_, err := node.Machine.Run(ctx, `kubeadm reset -f >/dev/null 2>&1 || true
systemctl disable -q --now kubelet.service 2>/dev/null || true
apt-get purge -q -y 'kubelot*' >/dev/null
rm -rf /etc/default/kubelet /etc/default/kubelot /etc/kubernetes /var/lib/kubelet /run/kubelot /root/.kube
systemctl daemon-reload && systemctl reset-failed`)
		if err != nil {
			t.Error(err)
		}
		if bed.Client.CoreV1().Nodes().Delete(ctx, guest.Name, noOptions) == nil {
			t.Log("the test has left its node in the cluster")
		}
	})
}

// The sections of the install page.
const (
	kubeadmNode   = "A kubeadm node in five commands"
	standaloneBox = "A standalone box in three commands"
)

// commands are those of a section of the install page.
func commands(t *testing.T, section string) []string {
	t.Helper()
	found, err := page.Commands(filepath.Join(node.Tools.Root, "docs", "install.md"), section)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// follow runs a command of the page as its reader does, in the directory of the packages.
func follow(t *testing.T, command string) string {
	t.Helper()
	t.Logf("following the page: %s", command)
	out, err := node.Machine.Run(t.Context(), "cd "+machine.Payload+"/"+packagesDir+" && "+command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// runtimeByPage has the container runtime as the page sets it up: its first three commands.
func runtimeByPage(t *testing.T) {
	t.Helper()
	fresh(t)
	for _, command := range commands(t, kubeadmNode)[:3] {
		follow(t, command)
	}
	importImages(t, "images/tests.tar")
	// There is no registry here, so the sandbox image must be there by the name that the runtime's configuration has.
	in(t, `ref=$(sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p' /etc/containerd/config.toml)
test -n "$ref" && ctr -n k8s.io images tag --force "$(ctr -n k8s.io images list -q | grep '/pause:' | head -n 1)" "$ref"`)
}

func importImages(t *testing.T, archive string) {
	t.Helper()
	in(t, "ctr -n k8s.io images import "+machine.Payload+"/"+archive)
}

// network installs the cluster's network on the node.
func network(t *testing.T) {
	t.Helper()
	write(t, "/etc/cni/net.d/10-pods.conflist", guest.CNI())
}

// nodeAddress has the node agent use the address by which the control plane reaches it, as an administrator says it.
func nodeAddress(t *testing.T) {
	t.Helper()
	write(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-ip="+node.Address.String()+"\n")
}

// nothingIsLeft checks that no agent and no pod runs, and nothing of them is mounted or kept in a cgroup.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	for what, command := range map[string]string{
		"daemons": "systemctl list-units --plain --no-legend --state=active 'kubelot-*.service' kubelet.service | " +
			"grep -v -e kubelot-shutdown -e kubelot-containers || true",
		"processes":  "pgrep -a '^kubel[eo]t' || true",
		"containers": "ctr -n k8s.io containers list -q",
		"mounts":     "grep ' /var/lib/kubelet/' /proc/mounts || true",
		// kubeadm ends the pods by the runtime, when there is nobody any more to remove their cgroups.
		"processes of pods": "find /sys/fs/cgroup -path '*kubepods*pod*' -name cgroup.events " +
			"-exec grep -l 'populated 1' {} + || true",
		// /etc/kubernetes/tmp has kubeadm's copies of what it has changed.
		"files": "find /var/lib/kubelet /etc/kubernetes -type f -not -path '/etc/kubernetes/tmp/*' 2>/dev/null; " +
			"find /var/lib/etcd -mindepth 1 2>/dev/null || true",
	} {
		if left := in(t, command); left != "" {
			t.Errorf("%s are left:\n%s", what, left)
		}
	}
}

// readyWord begins what held says of the Ready condition.
const readyWord = "Ready="

// held is what must not change of a pod while its agent is stopped, replaced or restarted.
func held(p *corev1.Pod) string {
	var text string
	for _, s := range p.Status.ContainerStatuses {
		text += fmt.Sprintf("%s %s restarts=%d ", s.Name, s.ContainerID, s.RestartCount)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			text += fmt.Sprintf("%s%s since %s", readyWord, c.Status, c.LastTransitionTime.UTC())
		}
	}
	return text
}

// withoutReady is what held says without the Ready condition.
func withoutReady(held string) string {
	text, _, _ := strings.Cut(held, readyWord)
	return text
}

// answers waits until a command in the pod has run by way of the API server and the agent.
func answers(t *testing.T, ns *kit.Namespace, pod string) {
	t.Helper()
	eventually(t, "an exec in pod "+pod, func(context.Context) error {
		out, err := ns.TryKubectl("exec", pod, "--", "echo", "here")
		if err == nil && strings.TrimSpace(out) != "here" {
			err = fmt.Errorf("it said %q", out)
		}
		return err
	})
}

// readySince is the time since when the node has had its Ready condition, which must be true.
func readySince(t *testing.T) string {
	t.Helper()
	n, err := node.KubeNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.UTC().String()
		}
	}
	t.Fatalf("the node isn't Ready: %+v", n.Status.Conditions)
	return ""
}

func awaitReady(t *testing.T) {
	t.Helper()
	if err := node.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// daemons waits until all of them run, and returns their processes.
func daemons(t *testing.T) map[string]string {
	t.Helper()
	running := map[string]string{}
	eventually(t, "all daemons to run", func(ctx context.Context) error {
		clear(running)
		out, err := node.Machine.Run(ctx, "systemctl show -p Id -p MainPID 'kubelot-*.service'")
		if err != nil {
			return err
		}
		for block := range strings.SplitSeq(out, "\n\n") {
			properties := map[string]string{}
			for line := range strings.Lines(block) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				properties[key] = value
			}
			if pid := properties["MainPID"]; pid != "" && pid != "0" {
				running[properties["Id"]] = pid
			}
		}
		if got := slices.Sorted(maps.Keys(running)); !slices.Equal(got, guest.DaemonUnits()) {
			return fmt.Errorf("there run %v, not %v: %s", got, guest.DaemonUnits(), out)
		}
		return nil
	})
	return running
}
