package crash

import (
	"os"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
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

// TestCompactLayout runs all daemons in one process and kills that while pods start and while they stop. Then the bus
// can't start: it is tried again and again, the others wait for it in the same process, and it recovers alone.
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

// oneFails starts the crew while another process holds the lock on the bus's store, and has that end.
func oneFails(t *testing.T, own *kit.Bed) {
	t.Helper()
	own.Node.Stop()
	lock, err := os.OpenFile(own.Bed.Path("run", "bus", "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	log := newJournal(t, own)
	launched := make(chan error, 1)
	go func() { launched <- own.Node.Launch(t.Context()) }()
	log.says(t, "group", "ended=bus", "stop it first", "pause=800ms")
	log.says(t, "podsync", "daemon starting") // the others don't wait for ever
	pid, err := own.Daemon("bus")
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if err := <-launched; err != nil {
		t.Fatal(err)
	}
	if now, err := own.Daemon("bus"); err != nil || now != pid {
		t.Errorf("the group was process %d and is %d (%v): one daemon's failure ended it", pid, now, err)
	}
	if len(log.lines(t, "podsync", "daemon starting")) != 1 || len(log.lines(t, "bus", "daemon starting")) < 5 {
		t.Errorf("the bus alone was to be started again:\n%s", log.read(t))
	}
}
