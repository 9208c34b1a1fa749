package crash

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/harness/node"
)

// probedOften is a pod whose readiness a single lost or failed probe would turn.
const probedOften = `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
`

// TestCompactLayout runs all daemons in one process and kills that while pods start and while they stop. Then one daemon can't do
// its work and is started again and again: the others go on in the same process, and it recovers alone.
func TestCompactLayout(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), node.KubelotCompact); err != nil {
		t.Fatal(err)
	}
	ns := own.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	ns.Apply(probedOften)
	probed := ns.Running("probed")
	before := newHerd(t, ns, "before", 2)
	before.running(2)

	h := newHerd(t, ns, "compact", outageHerd)
	for _, started := range []int{1, 6} {
		kit.Eventually(t, "the pods to start", atLeast(h.alive, started))
		kill(t, own, "podsync")
	}
	h.running(outageHerd)
	h.delete()
	kit.Eventually(t, "the pods to stop", atMost(h.alive, 9))
	kill(t, own, "podsync")
	h.gone()
	unchanged(t, ns, before)

	oneFails(t, own)
	h = newHerd(t, ns, "after", 2)
	h.running(2)
	unchanged(t, ns, before)
	is := ns.Running("probed")
	if a, b := kit.Status(probed, "main"), kit.Status(is, "main"); a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("the probed pod ran in %s and runs in %s, restarts %d", a.ContainerID, b.ContainerID, b.RestartCount)
	}
	if a, b := readyCondition(probed), readyCondition(is); !a.LastTransitionTime.Equal(&b.LastTransitionTime) {
		t.Errorf("the probed pod's Ready turned: %v, then %v", a, b)
	}
}

// oneFails starts the crew while the port of the api daemon's healthz is taken, and frees it.
func oneFails(t *testing.T, own *kit.Bed) {
	t.Helper()
	own.Node.Stop()
	address := fmt.Sprintf("127.0.0.1:%d", own.Node.HealthPort)
	taken, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	log := newJournal(t, own)
	if err := own.Node.Launch(t.Context()); err != nil { // the node is Ready without it
		t.Fatal(err)
	}
	log.says(t, "group", "ended=api", "address already in use", "pause=200ms")
	pid, err := own.Daemon("api")
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	kit.Eventually(t, "the api daemon", func() error {
		answer, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
	if now, err := own.Daemon("api"); err != nil || now != pid {
		t.Errorf("the group was process %d and is %d (%v): one daemon's failure ended it", pid, now, err)
	}
	if len(log.lines(t, "podsync", "daemon starting")) != 1 || len(log.lines(t, "api", "daemon starting")) < 3 {
		t.Errorf("api alone was to be started again:\n%s", log.read(t))
	}
}
