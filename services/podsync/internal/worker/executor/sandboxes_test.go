package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/runtime/dns"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// blindNode can't read its resolver configuration.
type blindNode struct{ plainNode }

func (blindNode) DNS() (dns.Node, error) { return dns.Node{}, errors.New("resolv.conf: no such file") }

func TestNoSandboxWithoutAResolverConfiguration(t *testing.T) {
	r := &busyRuntime{}
	a, told := newExecutor(t, r, func(d *Deps) { d.Node = blindNode{plainNode{t.TempDir()}} })
	out := a.Do(t.Context(), worker.Snapshot{Pod: hooked()}, plan.Action{Kind: plan.CreateSandbox})
	if out.Err == nil || !strings.Contains(out.Err.Error(), "resolv.conf") || len(r.calls) > 0 {
		t.Errorf("error %v, calls %v; want an error that names the file, and no call", out.Err, r.calls)
	}
	if got := strings.Join(told.list, ", "); got != "Warning FailedCreatePodSandBox" {
		t.Errorf("events %s", got)
	}
}

func TestNoSandboxWithoutTheUserNamespaceThatIsAskedFor(t *testing.T) {
	no := false
	for class, c := range map[string]struct{ calls, events string }{
		"":     {"", "Warning FailedCreatePodSandBox"},
		"kata": {"run", ""},
	} {
		r := &busyRuntime{}
		a, told := newExecutor(t, r)
		pod := hooked()
		pod.Spec.HostUsers, pod.Spec.RuntimeClassName = &no, &class
		out := a.Do(t.Context(), worker.Snapshot{Pod: pod}, plan.Action{Kind: plan.CreateSandbox})
		if (out.Err == nil) != (c.calls == "run") {
			t.Errorf("handler %q: error %v", class, out.Err)
		}
		if calls, events := strings.Join(r.calls, ", "), strings.Join(told.list, ", "); calls != c.calls ||
			events != c.events {
			t.Errorf("handler %q: calls %q, events %q", class, calls, events)
		}
	}
}

// busyCgroups can't be removed as long as they are busy.
type busyCgroups struct {
	noCgroups
	busy bool
}

func (c *busyCgroups) Destroy(context.Context, types.UID) error {
	if c.busy {
		return errors.New("device or resource busy")
	}
	return nil
}

func TestNothingIsReleasedBeforeTheCgroupIsGone(t *testing.T) {
	cgroups := &busyCgroups{busy: true}
	a, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) { d.Pods.Cgroups, d.Images = cgroups, &image.Puller{} })
	pod := hooked()
	dir := filepath.Join(a.containers.builder.node.CRI().RootDir, "pods", string(pod.UID))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	do := func(kind plan.Kind) error {
		return a.Do(t.Context(), worker.Snapshot{Pod: pod}, plan.Action{Kind: kind}).Err
	}
	if err := do(plan.ReleaseNode); err == nil || !strings.Contains(err.Error(), "device or resource busy") {
		t.Errorf("error %v, want that of the cgroup", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the pod's directory went before its cgroup: %v", err)
	}
	cgroups.busy = false
	if err := errors.Join(do(plan.ReleaseNode), do(plan.RemoveSandboxes)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod's directory in the end: %v", err)
	}
}

// A pod that has ended may stay for long, as that of a Job. Others get its IDs.
func TestAPodThatHasEndedKeepsNoRangeOfIDs(t *testing.T) {
	var ranges *UserNamespaces
	a, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) { ranges = d.Pods.UserNS })
	pod := hooked()
	pod.Spec.HostUsers = new(false)
	of := func(uid types.UID) (*corev1.Pod, error) {
		p := pod.DeepCopy()
		p.UID = uid
		_, err := ranges.For(p)
		return p, err
	}
	for i := range 3 * ranges.max {
		p, err := of(types.UID(fmt.Sprint("ended-", i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Do(t.Context(), worker.Snapshot{Pod: p}, plan.Action{Kind: plan.ReleaseNode}).Err; err != nil {
			t.Fatal(err)
		}
	}
	again, err := NewUserNamespaces(filepath.Dir(ranges.podsDir), ranges.length, ranges.max)
	if err != nil || len(again.used) > 0 {
		t.Errorf("after a restart %v are in use, %v", again.used, err)
	}
}
