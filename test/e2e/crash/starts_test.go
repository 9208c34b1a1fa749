package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// TestKilledDuringStarts kills podsync again and again just when the runtime is starting containers for it: the calls
// outlive it, each container's command runs once, and nobody hears of it.
func TestKilledDuringStarts(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	herds := []*herd{newHerd(t, ns, "cut-0", herdSize)}
	killed := 0
	for i := range 6 {
		kit.Eventually(t, "podsync", func() error {
			pid, err := bed.Daemon("podsync")
			if err == nil && pid == killed {
				return errors.New("it is the one that was killed")
			}
			killed = pid
			return err
		})
		// Where this process sleeps too long, all have started before it looks.
		for last := herds[len(herds)-1]; !last.awaitStart(); last = herds[len(herds)-1] {
			herds = append(herds, newHerd(t, ns, fmt.Sprintf("cut-%d", len(herds)), herdSize))
		}
		// A start takes some tens of milliseconds; each kill meets several, in different stages.
		time.Sleep(time.Duration(i) * 8 * time.Millisecond)
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range herds {
		h.running(herdSize)
	}
	noWarnings(t, ns)
	for _, h := range herds {
		h.delete()
		h.gone()
	}
}

// noWarnings checks that no Event of the node tells a user of trouble.
func noWarnings(t *testing.T, ns *kit.Namespace) {
	t.Helper()
	events, err := bed.Client.CoreV1().Events(ns.Name).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Source.Host != kit.NodeName {
			continue // the scheduler, where the machine is so busy that the node isn't Ready for a moment
		}
		t.Errorf("%s %s: %s: %s", e.InvolvedObject.Name, e.InvolvedObject.FieldPath, e.Reason, e.Message)
	}
}

// awaitStart waits for a start, and looks more often than kit.Eventually does. It is false if all have started before
// it saw one.
func (h *herd) awaitStart() bool {
	h.t.Helper()
	for end := time.Now().Add(kit.Patience); ; {
		err := h.starting()
		switch {
		case err == nil:
			return true
		case h.alive() == herdSize:
			return false
		case time.Now().After(end):
			h.t.Fatalf("no container is being started: %v", err)
		}
	}
}

// starting is an error unless the runtime is starting one of the herd's containers: it makes the log first.
func (h *herd) starting() error {
	answer, err := bed.CRI.Runtime().ListContainers(h.t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED},
			LabelSelector: map[string]string{"io.kubernetes.pod.namespace": h.ns.Name},
		}})
	if err != nil {
		return err
	}
	for _, c := range answer.GetContainers() {
		l := c.GetLabels()
		pod := fmt.Sprintf("%s_%s_%s", h.ns.Name, l["io.kubernetes.pod.name"], l["io.kubernetes.pod.uid"])
		if _, err := os.Stat(filepath.Join(bed.Node.PodLogs, pod, c.GetMetadata().GetName(), "0.log")); err == nil {
			return nil
		}
	}
	return errors.New("none is")
}
