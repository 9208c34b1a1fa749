package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// outageHerd is how many pods an outage meets; it is their mix of stages that matters, not their number.
const outageHerd = 12

// TestAPIServerOutage takes the API server away while pods start and while they stop, and kills daemons meanwhile.
func TestAPIServerOutage(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 3)
	before.running(3)

	h := newHerd(t, ns, "outage", outageHerd)
	kit.Eventually(t, "the pods to start", atLeast(h.alive, 3))
	bed.ControlPlane.StopAPIServer()
	for _, daemon := range []string{"podsync", "status", "volume", "lease"} {
		kill(t, bed, daemon)
	}
	kit.Eventually(t, "the crew without an API server", crewRuns)
	startAPIServer(t)
	h.running(outageHerd)

	h.delete()
	kit.Eventually(t, "the pods to stop", atMost(h.alive, 9))
	bed.ControlPlane.StopAPIServer()
	kill(t, bed, "status")
	// What is stopping stops without the API server too.
	time.Sleep(time.Second)
	startAPIServer(t)
	h.gone()
	unchanged(t, ns, before)
}

func startAPIServer(t *testing.T) {
	t.Helper()
	if err := bed.ControlPlane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// crewRuns is an error while a daemon is missing.
func crewRuns() error {
	var errs []error
	for _, daemon := range daemons {
		_, err := bed.Daemon(daemon)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TestContainerdRestart stops containerd under running pods and kills it under starting ones: what runs isn't touched,
// what is asked for meanwhile is done afterwards.
func TestContainerdRestart(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 3)
	before.running(3)
	going := newHerd(t, ns, "going", 3)
	going.running(3)

	bed.CRI.Stop()
	h := newHerd(t, ns, "meanwhile", outageHerd)
	going.delete()
	// The daemons see pods come and go without a runtime, and one of them has just begun.
	kill(t, bed, "pleg")
	kit.Eventually(t, "the crew without containerd", crewRuns)
	time.Sleep(time.Second)
	launchContainerd(t)
	going.gone()
	kit.Eventually(t, "the pods to start", atLeast(h.alive, 3))
	crashContainerd(t)
	h.cutStarts, h.runtimeDied = startsAtOnce, true
	h.running(outageHerd)
	h.delete()
	h.gone()
	unchanged(t, ns, before)
	nodeReady(t, bed, corev1.ConditionTrue)
}

func launchContainerd(t *testing.T) {
	t.Helper()
	if err := bed.CRI.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// crashContainerd kills containerd and launches it again. A network namespace that it had made and not written down yet
// is known to nobody then, not even to itself; such are taken away here, so that what the tests find left is kubelot's.
func crashContainerd(t *testing.T) {
	t.Helper()
	bed.CRI.Kill()
	forgotten, err := bed.Networks()
	if err != nil {
		t.Fatal(err)
	}
	launchContainerd(t)
	runtime := bed.CRI.Runtime()
	list, err := runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.GetItems() {
		var status *runtimeapi.PodSandboxStatusResponse
		kit.Eventually(t, "the status of sandbox "+s.GetId(), func() (err error) {
			status, err = runtime.PodSandboxStatus(t.Context(),
				&runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
			if grpcstatus.Code(err) == codes.NotFound {
				return nil // one that is removed meanwhile takes its network along
			}
			return err
		})
		forgotten = slices.DeleteFunc(forgotten, func(path string) bool {
			return strings.Contains(fmt.Sprint(status.GetInfo()), filepath.Base(path))
		})
	}
	for _, path := range forgotten {
		_ = syscall.Unmount(path, syscall.MNT_DETACH) // it may not be mounted yet
		if os.Remove(path) == nil {
			t.Logf("containerd forgot %s when it was killed", path)
		}
	}
}

// nodeReady waits until the bed's node has the Ready condition with that status and a message with all the texts.
func nodeReady(t *testing.T, b *kit.Bed, want corev1.ConditionStatus, texts ...string) {
	t.Helper()
	kit.Follow(t, fmt.Sprintf("Ready condition %s with %q", want, texts), func(ctx context.Context) (kit.Watcher, error) {
		return b.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + kit.NodeName})
	}, func(n *corev1.Node) bool {
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady &&
				c.Status == want
		})
		return i >= 0 && !slices.ContainsFunc(texts, func(text string) bool {
			return !strings.Contains(n.Status.Conditions[i].Message, text)
		})
	})
}
