package asnode

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/kubeadm"
	"kubelot.dev/test/vm/machine"
)

// TestTakeover has kubelot take a node of kubeadm over from the kubelet, which runs as kubeadm's drop-in says, and give
// it back.
func TestTakeover(t *testing.T) {
	runtimeByPage(t)
	network(t)
	nodeAddress(t)
	write(t, "/usr/lib/systemd/system/kubelet.service", kubeadm.Unit)
	in(t, "ln -sf /payload/bin/k8s-testbed /usr/bin/kubelet && systemctl daemon-reload && systemctl enable -q kubelet")
	t.Cleanup(func() {
		_, err := node.Machine.Run(context.WithoutCancel(t.Context()), "systemctl disable -q --now kubelet; "+
			"rm -f /usr/lib/systemd/system/kubelet.service /usr/bin/kubelet && systemctl daemon-reload")
		if err != nil {
			t.Error(err)
		}
	})
	j, err := host.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(in(t, j.Command()+" 2>&1"))
	awaitReady(t)
	approveServing(t)
	ns := bed.Namespace(t)
	ns.Apply(stays)
	stays := ns.Running("stays")
	answers(t, ns, "stays")
	old(stays)
	before, since := held(ns.Running("stays")), readySince(t)
	turned := false
	same := func(after string) {
		t.Helper()
		now, was := held(ns.Running("stays")), before
		if turned {
			now, was = withoutReady(now), withoutReady(was)
		}
		if now != was {
			t.Errorf("after %s the pod is %s, and was %s", after, now, was)
		}
		if now := readySince(t); now != since && !turned {
			t.Errorf("after %s the node is Ready since %s, and was since %s", after, now, since)
		}
	}

	// All but what kubeadm knows as the kubelet.
	in(t, "cd "+machine.Payload+"/"+packagesDir+" && apt install -y $(ls ./*.deb | grep -v kubelot-kubelet_)")
	if out := in(t, "systemctl is-active kubelet && kubelot takeover --check"); !strings.Contains(out,
		"kubelot can take this node over") {
		t.Errorf("the check says:\n%s", out)
	}
	same("the installation and the check")
	t.Log(in(t, "kubelot takeover --patience=20m"))
	for unit, pid := range daemons(t) {
		if args := in(t, "tr '\\0' ' ' </proc/"+pid+"/cmdline"); !strings.Contains(args, "--node-ip="+node.Address.String()) {
			t.Errorf("%s runs without the kubelet's flags: %s", unit, args)
		}
	}
	answers(t, ns, "stays")
	ns.Apply(fmt.Sprintf(another, "came"))
	old(ns.Running("came"))
	same("the takeover")

	t.Log(in(t, "kubelot handback"))
	eventually(t, "the kubelet to run alone", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "systemctl is-active kubelet >/dev/null && pgrep -a '^kubelot' || true")
		if err == nil && out != "" {
			err = fmt.Errorf("there run\n%s", out)
		}
		return err
	})
	in(t, "systemctl is-enabled kubelet && ! systemctl is-enabled -q kubelot.target")
	// It is the kubelet that answers.
	eventually(t, "the kubelet to report", func(ctx context.Context) error {
		_, err := node.Machine.Run(ctx, "curl -fsS http://127.0.0.1:10248/healthz")
		return err
	})
	answers(t, ns, "stays")
	// On a slow machine the kubelet reports its node before it has looked at the runtime for the first time.
	said := in(t, "journalctl -o cat -u kubelet --since '10 min ago' | grep 'Node became not ready' || true")
	if turned = said != ""; turned {
		t.Logf("the kubelet says that its node isn't Ready: %s", said)
		awaitReady(t)
	}
	same("the way back")
	if left := in(t, "ls -A /etc/systemd/system/kubelot-.service.d 2>/dev/null || true"); left != "" {
		t.Errorf("the takeover has left %s", left)
	}

	// The kubelet has marked what the crew's bus knew, and a crew that comes again doesn't go by it.
	in(t, "test -d /run/kubelot/bus/disowned")
	t.Log(in(t, "kubelot takeover --patience=20m"))
	if said := in(t, "journalctl -o cat -u kubelot-bus"); !strings.Contains(said, "another agent has had the node") {
		t.Errorf("the bus says:\n%s", said)
	}
	answers(t, ns, "stays")
	same("the second takeover")
	t.Log(in(t, "kubelot handback"))
	resetNode(t)
}

// another is a pod by the given name, which only waits.
const another = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1 & wait; done']
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60}
`

// old waits until a kubelet that starts doesn't take the pod's container for a new one, which isn't ready before its
// first probe: it does so with those younger than ten seconds.
func old(p *corev1.Pod) {
	time.Sleep(time.Until(kit.Status(p, "app").State.Running.StartedAt.Add(15 * time.Second)))
}
