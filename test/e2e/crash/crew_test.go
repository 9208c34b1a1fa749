package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// TestCrewRestart kills the whole crew while pods start, stops it in order while they run, and kills it while they
// stop.
func TestCrewRestart(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 3)
	before.running(3)

	h := newHerd(t, ns, "crew", outageHerd)
	kit.Eventually(t, "the pods to start", atLeast(h.alive, 3))
	killCrew(t)
	// kubelot up, which keeps podsync's connection to the runtime open when podsync is killed, dies too.
	h.cutStarts = startsAtOnce
	relaunch(t)
	h.running(outageHerd)
	bed.Node.Stop()
	relaunch(t)
	unchanged(t, ns, h)
	h.delete()
	kit.Eventually(t, "the pods to stop", atMost(h.alive, 9))
	killCrew(t)
	relaunch(t)
	h.gone()
	unchanged(t, ns, before)
}

// killCrew kills all daemons and what runs them.
func killCrew(t *testing.T) {
	t.Helper()
	if err := bed.Node.Kill(); err != nil {
		t.Fatal(err)
	}
}

func relaunch(t *testing.T) {
	t.Helper()
	if err := bed.Node.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFrozenDaemons stops the clocks of daemons for a while (SIGSTOP): what they missed is done when they go on.
func TestFrozenDaemons(t *testing.T) {
	frozen := []string{"pleg", "status", "bus"}
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	for _, daemon := range frozen {
		bed.Signal(t, daemon, syscall.SIGSTOP)
	}
	h := newHerd(t, ns, "frozen", outageHerd)
	time.Sleep(2 * time.Second) // the time for which nobody answers
	for _, daemon := range frozen {
		bed.Signal(t, daemon, syscall.SIGCONT)
	}
	h.running(outageHerd)
	h.delete()
	h.gone()
}

// TestNewsDuringOutage has pods end, restart and stop, and a static pod come, while the API server is away: the node
// goes on by itself, and the API server learns of all of it afterwards.
func TestNewsDuringOutage(t *testing.T) {
	// Each ends when the test has made its file, also the one that is told to stop.
	dir := t.TempDir()
	const waits = `{name: app, image: "busybox:1.36", volumeMounts: [{name: d, mountPath: /d}], command: [sh, -c, "until [ -e /d/$(hostname) ]; do sleep 0.1; done; rm /d/$(hostname); exit 3"]}`
	const plain = `{name: app, image: "busybox:1.36", command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]}`
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec: {terminationGracePeriodSeconds: 3, " +
		"restartPolicy: %s, containers: [%s], volumes: [{name: d, hostPath: {path: " + dir + "}}]}\n"
	ns := bed.Namespace(t)
	ns.Apply(settings)
	ns.Apply(fmt.Sprintf(pod, "ends", ns.Name, "Never", waits) + "---\n" + fmt.Sprintf(pod, "restarts", ns.Name, "Always",
		strings.Replace(waits, "command:", "envFrom: [{configMapRef: {name: settings}}], command:", 1)) + "---\n" +
		fmt.Sprintf(pod, "stops", ns.Name, "Always", strings.Replace(waits, "until",
			"trap 'touch /d/asked' TERM; until", 1)))
	ends, restarts, stops := ns.Running("ends"), ns.Running("restarts"), ns.Running("stops")
	ns.HeedsTERM(stops, "app")
	ns.Delete("stops", 120)
	kit.Eventually(t, "the node to hear of the deletion before the API server goes", func() error {
		_, err := os.Stat(filepath.Join(dir, "asked"))
		return err
	})
	bed.ControlPlane.StopAPIServer()
	defer startAPIServerAgain(t)()

	for _, p := range []*corev1.Pod{ends, restarts, stops} {
		write(t, filepath.Join(dir, p.Name), "")
	}
	manifest := filepath.Join(bed.Node.ManifestDir, "outage.yaml")
	write(t, manifest, fmt.Sprintf(pod, "outage", ns.Name, "Always", plain))
	kit.Eventually(t, "the static pod", func() error {
		return attempts(t, "io.kubernetes.pod.name", "outage-"+kit.NodeName, "0")
	})
	kit.Eventually(t, "the restarted container", func() error {
		return attempts(t, "io.kubernetes.pod.uid", string(restarts.UID), "1")
	})
	kit.Eventually(t, "the deleted pod's container to end", func() error {
		return attempts(t, "io.kubernetes.pod.uid", string(stops.UID), "")
	})
	kill(t, bed, "status") // what it had to tell is on the bus
	startAPIServer(t)

	if s := kit.Status(ns.Phase("ends", corev1.PodFailed), "app"); s.State.Terminated == nil ||
		s.State.Terminated.ExitCode != 3 {
		t.Errorf("the pod that ended meanwhile: %+v", s)
	}
	ns.Wait("restarts", "its restart", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return kit.Ready(p) && s.RestartCount == 1 && s.LastTerminationState.Terminated != nil &&
			s.LastTerminationState.Terminated.ExitCode == 3
	})
	ns.Gone(stops)
	mirror := ns.Running("outage-" + kit.NodeName)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	ns.Gone(mirror)
}

// startAPIServerAgain is for a test that ends while the API server is away.
func startAPIServerAgain(t *testing.T) func() {
	return func() {
		if t.Failed() {
			startAPIServer(t)
		}
	}
}

// attempts is an error unless the running containers with that label have just these attempts.
func attempts(t *testing.T, label, value, want string) error {
	t.Helper()
	answer, err := bed.CRI.Runtime().ListContainers(t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			LabelSelector: map[string]string{label: value},
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
	if err != nil {
		return err
	}
	var found []string
	for _, c := range answer.GetContainers() {
		found = append(found, fmt.Sprint(c.GetMetadata().GetAttempt()))
	}
	if got := strings.Join(found, " "); got != want {
		return fmt.Errorf("running containers of %s have the attempts [%s], want [%s]", value, got, want)
	}
	return nil
}
