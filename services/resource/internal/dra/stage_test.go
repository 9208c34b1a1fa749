package dra

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

// A pod whose sandbox is up has its claims, whoever has had them prepared, and whatever its drivers say or don't.
func TestASandboxThatIsUpProvesThatClaimsArePrepared(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.calls(d, "prepare one")
		b.restart() // nothing is known of it, as after a kubelet
		b.register()
		b.api.set(func() { b.api.err = errors.New("away") })
		b.m.Want(a, Sandboxed)
		b.wait(0)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.register("d")
		b.wait(2 * period)
		b.calls(d)
		b.api.set(func() { b.api.err = nil })
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d, "unprepare one")
	})
}

// A sandbox that is up proves nothing of a driver that is asked since what it gave was lost: it is asked until it
// answers, also by a later process. A driver that answers without devices isn't asked again.
func TestADriverThatHasNotAnsweredIsNotTrusted(t *testing.T) {
	for name, lose := range map[string]func(b *bed, d *dratest.Driver){
		"its file is gone": func(b *bed, _ *dratest.Driver) {
			b.stop()
			if err := os.Remove(filepath.Join(b.root, "dra_manager_state")); err != nil {
				b.t.Fatal(err)
			}
			b.start("a")
		},
		"it was to unprepare": func(b *bed, d *dratest.Driver) {
			d.Set(dratest.Fault{Hang: true})
			b.ended(podWith("a", "one"))
			b.restart("a")
			b.calls(d, "unprepare one")
		},
	} {
		for _, cdi := range []string{"test/dev=one", ""} {
			t.Run(name+", gives "+cdi, func(t *testing.T) {
				run(t, func(b *bed) { notTrusted(b, cdi, lose) })
			})
		}
	}
}

func notTrusted(b *bed, cdi string, lose func(b *bed, d *dratest.Driver)) {
	gives := dratest.Fault{Change: func(r *drav1.NodePrepareResourcesResponse) {
		if cdi == "" {
			r.Claims["uid-one"].Devices = nil
		}
	}}
	sandboxed := func() {
		b.m.Want(podWith("a", "one"), Sandboxed)
		b.wait(0)
	}
	b.api.claim("one", "d", "a")
	d := b.driver("d")
	d.Set(gives)
	b.want(podWith("a", "one"))
	b.is("a", topic.Allocated, cdi, "")
	b.calls(d, "prepare one")
	lose(b, d)
	d.Set(dratest.Fault{Err: errors.New("out of order")})
	sandboxed()
	sandboxed()
	b.is("a", topic.Allocating, "", "out of order")
	d.Set(dratest.Fault{Hang: true})
	b.wait(2 * time.Second)
	b.restart("a")
	b.calls(d, "prepare one", "prepare one")
	d.Set(gives)
	sandboxed()
	b.is("a", topic.Allocated, cdi, "")
	b.calls(d, "prepare one")
	b.restart("a")
	sandboxed()
	b.is("a", topic.Allocated, cdi, "")
	b.calls(d)
}

// The drivers of a pod that is refused in the end hear nothing of it.
func TestNothingIsPreparedForAPodThatMayBeRefused(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a b")
		d := b.driver("d")
		a, refused := podWith("a", "one"), podWith("b", "one")
		b.m.Want(a, Judged)
		b.m.Want(refused, Judged)
		b.wait(period)
		b.calls(d)
		b.m.Ended(refused)
		b.wait(0)
		b.is("b", topic.AllocationReleased, "", "")
		b.calls(d)
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		// It isn't known any more that it was admitted.
		b.restart()
		b.m.Want(a, Judged)
		b.wait(0)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
	})
}
