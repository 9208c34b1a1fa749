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
