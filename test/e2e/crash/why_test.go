package crash

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// waitingPod is a pod of this node, whatever the scheduler thinks of the node.
func waitingPod(name, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  nodeName: " + kit.NodeName +
		"\n  terminationGracePeriodSeconds: 5\n  containers: [{name: app, image: \"busybox:1.36\", command: [sh, -c, " +
		`'trap "" TERM; while :; do sleep 1000 & wait; done']` + more + "}]\n"
}

// TestWhyNetwork breaks the pod network's configuration in one way after the other: the pod that waits for its sandbox,
// and the node where it is about it, say which.
func TestWhyNetwork(t *testing.T) {
	t.Parallel()
	own := ownBed(t, func(*kit.Bed) []string { return nil })
	ns := own.Namespace(t)
	file := own.Bed.Path("cni", "10-testbed.conflist")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bridge, subnet, gateway := own.Bed.Bridge, own.Bed.Subnet.String(), own.Bed.Gateway.String()
	plugin := func(kind, ipam string) {
		text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": %q, "bridge": %q, "isGateway": true, `+
			`"ipam": {"type": "host-local", "dataDir": %q, "ranges": [%s]}}]}`,
			own.Bed.Network(), kind, bridge, t.TempDir(), ipam)
		write(t, file, text)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	own.NodeSays(t, "this node has no pod network yet: NetworkPluginNotReady",
		"a CNI configuration must be in /etc/cni/net.d")
	ns.Apply(waitingPod("early", ""))
	ns.Says("early", "this node has no pod network yet: NetworkPluginNotReady", "is waiting: 0 of 1 container ready")
	plugin("no-such-plugin", "")
	if own.CRIO(t) { // it looks for the plugins when it reads the configuration
		ns.Says("early", "this node has no pod network yet: NetworkPluginNotReady")
	} else {
		ns.Says("early", `the pod can't start: the network plugin "no-such-plugin" isn't installed on this node`,
			"is the network's DaemonSet running on this node?")
	}
	plugin("bridge", `[{"subnet": "198.51.100.0/24"}]`)
	ns.Says("early", "the pod can't start: the bridge "+bridge+" has an address of an earlier network configuration")
	plugin("bridge", "")
	ns.Says("early", `the pod can't start: the network plugin "bridge" fails: `)
	plugin("bridge", fmt.Sprintf(`[{"subnet": %q, "gateway": %q, "rangeStart": %q, "rangeEnd": %q}]`, subnet, gateway,
		gateway, gateway))
	ns.Says("early", "the pod can't start: no address is left for pods on this node",
		"waits for: a pod of this node to end")
	write(t, file, string(good))
	p := ns.Running("early")
	ns.Delete("early", 1)
	ns.Gone(p)
}

// TestWhyOutages takes the runtime, the daemons and the API server away: pods and the node say what is missing.
func TestWhyOutages(t *testing.T) {
	t.Parallel()
	own := ownBed(t, func(*kit.Bed) []string { return nil })
	own.NotCompact(t, "its daemons can't be stopped one by one")
	ns := own.Namespace(t)
	ns.Apply(waitingPod("probed", `, readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}`) + "---\n" +
		waitingPod("ends", ""))
	ns.Says("probed", "its readiness probe (TCP :81) has failed for ")
	ends := ns.Running("ends")

	own.CRI.Stop()
	ns.Apply(waitingPod("late", ""))
	own.NodeSays(t, "the container runtime of this node isn't running, or has its socket elsewhere")
	ns.Says("late", "the container runtime of this node isn't running, or has its socket elsewhere", "kubelot doctor")
	if err := own.CRI.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := ns.Running("late")

	without := map[string]string{
		"podsync": "no pod is started or ended", "pleg": "nobody sees what runs",
		"volume": "no volume is mounted or unmounted",
		"probe":  "no probe is run", "lease": "the Node isn't kept up to date",
		"status": "the API server isn't told how pods stand", "gc": "nothing is cleaned up and nobody is evicted",
		"resource": "no pod gets devices, CPUs of its own or claims, or gives them back",
		"stats":    "the node's memory, disks and usage aren't measured",
		"api":      "kubectl logs, exec and top don't work for the node's pods",
	}
	var words []string
	for daemon, what := range without {
		own.Signal(t, daemon, syscall.SIGSTOP)
		words = append(words, "the daemon "+daemon+" doesn't run or hangs, so "+what)
	}
	ns.Apply(waitingPod("unseen", ""))
	own.NodeSays(t, words...)
	ns.Says("probed", "the daemon podsync doesn't run or hangs, so no pod is started or ended",
		"the daemon probe doesn't run or hangs, so no probe is run")
	for daemon := range without {
		own.Signal(t, daemon, syscall.SIGCONT)
	}
	unseen := ns.Running("unseen")

	ns.Delete("ends", 300)
	ns.Says("ends", "is stopping: ")
	own.ControlPlane.StopAPIServer()
	own.KillContainer(t, ends, "app")
	ns.Says("ends", "it is over on this node, and kubelot can't delete its API object: ")
	if err := own.ControlPlane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.Gone(ends)
	for _, p := range []*corev1.Pod{late, unseen} {
		ns.Delete(p.Name, 1)
		ns.Gone(p)
	}
}
