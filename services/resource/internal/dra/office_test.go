package dra

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

// A driver is removed for good while a pod has its device: the pod goes once a person gives up on the driver, and not
// before. The next process knows of it.
func TestForgetDrivers(t *testing.T) {
	t.Run("it is removed in order", func(t *testing.T) {
		testForget(t, func(b *bed) { b.register() }, topic.ClaimDriver{Name: "d", Standing: "prepared"},
			"the pod stays until its ResourceClaims are unprepared")
	})
	t.Run("it leaves its sockets", func(t *testing.T) {
		testForget(t, func(*bed) {}, topic.ClaimDriver{Name: "d", Standing: "unsure", Registered: true},
			"; if the driver is gone for good")
	})
}

// testForget gives up on a driver that is killed and leaves in this way. left is what is listed of it then, and words
// are what its pod says.
func testForget(t *testing.T, leave func(b *bed), left topic.ClaimDriver, words string) {
	t.Helper()
	run(t, func(b *bed) {
		one := topic.ForgetRequest{Namespace: "ns", Name: "one"}
		refused := func(kind error, words string) {
			b.t.Helper()
			got, err := OfficeOf(b.m).Forget(b.t.Context(), one)
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
				b.t.Errorf("forgot %v, %v; want an error with %q", got, err, words)
			}
			b.wait(0)
		}
		refused(bus.ErrNotFound, "no pod of this node has or had the ResourceClaim ns/one")
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		refused(bus.ErrRefused, "has not ended: delete the pod first")
		b.crash("d", d)
		leave(b)
		refused(bus.ErrRefused, "has not ended: delete the pod first")
		b.ended(a)
		b.wait(period)
		if got := b.status["a"]; got.Phase == topic.AllocationReleased ||
			!strings.Contains(got.Message, words) || !strings.Contains(got.Message, "see kubelot claims forget") {
			b.t.Errorf("status %+v", got)
		}
		reply, err := OfficeOf(b.m).List(b.t.Context(), topic.ClaimsRequest{})
		list := reply.Claims
		if err != nil || len(list) != 1 || list[0].Name != "one" || len(list[0].Pods) != 1 || !list[0].Pods[0].Ended ||
			list[0].Pods[0].UID != "a" || !slices.Equal(list[0].Drivers, []topic.ClaimDriver{left}) {
			b.t.Errorf("listed %+v, %v", list, err)
		}
		if got, err := OfficeOf(b.m).Forget(b.t.Context(), one); err != nil || !slices.Equal(got.Drivers, []string{"d"}) {
			b.t.Errorf("forgot %v, %v", got, err)
		}
		b.wait(0)
		b.is("a", topic.AllocationReleased, "", "")
		b.disk("-uid-one")
		b.restart()
		refused(bus.ErrNotFound, "no pod of this node")
	})
}

// What a person has given up on stays so for a process that begins before the claim's pod is released.
func TestForgetDriversAndDie(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.crash("d", d)
		b.register()
		b.ended(a) // the first attempt to release it fails, and the next one is a second later
		got, err := OfficeOf(b.m).Forget(b.t.Context(), topic.ForgetRequest{Namespace: "ns", Name: "one"})
		if err != nil || !slices.Equal(got.Drivers, []string{"d"}) {
			b.t.Fatalf("forgot %v, %v", got, err)
		}
		b.disk("-uid-one")
		b.restart("a")
		b.register()
		b.m.Synced()
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.disk("-uid-one")
	})
}

// A pod may be back in the second in which its claim is released, as what told of its end was wrong. It has its devices
// only when the driver that a person has given up on has prepared them again.
func TestForgetDriversOfAPodThatIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		drivers string
		between func(b *bed)
	}{
		"its only driver": {"d", func(*bed) {}},
		"one of two":      {"d e", func(*bed) {}},
		"its only driver, and the daemon begins anew":  {"d", func(b *bed) { b.restart("a"); b.register("e") }},
		"one of two, and the daemon begins anew":       {"d e", func(b *bed) { b.restart("a"); b.register("e") }},
		"one of two, and the other one is called then": {"d e", func(b *bed) { b.wait(period) }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.api.claim("one", c.drivers, "a")
				d, e := b.serve("d"), b.serve("e")
				b.register("d", "e")
				b.wait(2 * time.Second)
				a := podWith("a", "one")
				b.want(a)
				b.is("a", topic.Allocated, "test/dev=one", "")
				b.crash("d", d)
				b.register()
				b.ended(a) // no driver is there
				b.register("e")
				got, err := OfficeOf(b.m).Forget(b.t.Context(), topic.ForgetRequest{Namespace: "ns", Name: "one"})
				if err != nil || !slices.Equal(got.Drivers, []string{"d"}) {
					b.t.Fatalf("forgot %v, %v", got, err)
				}
				c.between(b)
				b.want(a)
				b.wait(time.Second)
				b.is("a", topic.Allocating, "", "DRA driver d is not registered")
				d = b.serve("d")
				b.register("d", "e")
				b.wait(period)
				b.is("a", topic.Allocated, "test/dev=one", "")
				b.calls(d, "prepare one")
				if last := e.Calls(); strings.Contains(c.drivers, "e") && last[len(last)-1] != "prepare one" {
					b.t.Errorf("the other driver was called %q", last)
				}
			})
		})
	}
}

// Nothing is given up while a driver is being called about the claim: what it answers would be taken for all of it.
func TestForgetDriversWhileAnotherIsCalled(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d e", "a")
		d, e := b.serve("d"), b.serve("e")
		b.register("d", "e")
		b.wait(2 * time.Second)
		d.Set(dratest.Fault{Err: errors.New("busy")})
		e.Set(dratest.Fault{Hang: true})
		a := podWith("a", "one")
		b.want(a)
		b.crash("d", d)
		b.register("e")
		b.ended(a)
		one := topic.ForgetRequest{Namespace: "ns", Name: "one"}
		const words = "the driver e is being called about the ResourceClaim ns/one: try again"
		if got, err := OfficeOf(b.m).Forget(b.t.Context(), one); !errors.Is(err, bus.ErrRefused) ||
			!strings.Contains(err.Error(), words) {
			b.t.Errorf("forgot %v, %v", got, err)
		}
		b.want(a)
		e.Set(dratest.Fault{})
		b.wait(time.Second)
		b.is("a", topic.Allocating, "", "DRA driver d is not registered")
		b.ended(a)
		b.wait(period)
		if got, err := OfficeOf(b.m).Forget(b.t.Context(), one); err != nil || !slices.Equal(got.Drivers, []string{"d"}) {
			b.t.Errorf("forgot %v, %v", got, err)
		}
		b.wait(2 * time.Second)
		b.is("a", topic.AllocationReleased, "", "")
		b.disk("-uid-one")
	})
}

// A driver that is there is asked to give a claim back, however often that fails.
func TestForgetDriversThatAreThere(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		d.Set(dratest.Fault{Err: errors.New("busy")})
		b.ended(a)
		b.wait(period)
		const words = "the driver d of the ResourceClaim ns/one is there"
		got, err := OfficeOf(b.m).Forget(b.t.Context(), topic.ForgetRequest{Namespace: "ns", Name: "one"})
		if !errors.Is(err, bus.ErrRefused) || !strings.Contains(err.Error(), words) {
			b.t.Errorf("forgot %v, %v", got, err)
		}
	})
}
