package act

import (
	"errors"
	"strings"
	"testing"

	"kubelot.dev/services/podsync/internal/dns"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/worker"
)

// blindNode can't read its resolver configuration.
type blindNode struct{ plainNode }

func (blindNode) DNS() (dns.Node, error) { return dns.Node{}, errors.New("resolv.conf: no such file") }

func TestNoSandboxWithoutAResolverConfiguration(t *testing.T) {
	r := &busyRuntime{}
	a, told := newActor(t, r, nil)
	a.Node = blindNode{plainNode{t.TempDir()}}
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
		a, told := newActor(t, r, nil)
		pod := hooked()
		pod.Spec.HostUsers, pod.Spec.RuntimeClassName = &no, &class
		out := a.Do(t.Context(), worker.Snapshot{Pod: pod}, plan.Action{Kind: plan.CreateSandbox})
		if (out.Err == nil) != (c.calls == "run") {
			t.Errorf("handler %q: error %v", class, out.Err)
		}
		if calls, events := strings.Join(r.calls, ", "), strings.Join(told.list, ", "); calls != c.calls || events != c.events {
			t.Errorf("handler %q: calls %q, events %q", class, calls, events)
		}
	}
}
