package dra

import (
	"errors"
	"testing"

	"kubelot.dev/bus/topic"
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
