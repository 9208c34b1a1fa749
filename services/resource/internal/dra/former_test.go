package dra

import (
	"testing"
	"time"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

// A claim that is allocated anew, while a pod that was deleted by force still runs with it, has its new devices: who
// gets it waits for the end of that pod, and goes on by itself.
func TestAClaimThatIsAllocatedAnew(t *testing.T) {
	for name, end := range map[string]func(b *bed){
		"its pod ends":    func(b *bed) { b.ended(podWith("a", "one")) },
		"its pod is gone": func(b *bed) { b.m.Forget("a"); b.wait(0) },
		"its pod was gone after a restart": func(b *bed) {
			b.restart("a")
			b.want(podWith("b", "one"))
			b.is("b", topic.Allocating, "", "is still used by a pod for which it is not reserved any more")
			b.m.Synced()
			b.wait(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.api.claim("one", "d", "a")
				d := b.driver("d")
				b.want(podWith("a", "one"))
				b.is("a", topic.Allocated, "test/dev=one", "")
				b.api.claim("one", "d", "b")
				d.Set(dratest.Fault{Change: func(r *drav1.NodePrepareResourcesResponse) {
					r.Claims["uid-one"].Devices[0].CdiDeviceIds = []string{"test/dev=other"}
				}})
				gets := b.api.gets
				b.want(podWith("b", "one"))
				b.wait(2 * period)
				b.is("b", topic.Allocating, "", "is still used by a pod for which it is not reserved any more")
				b.is("a", topic.Allocated, "test/dev=one", "")
				b.calls(d, "prepare one")
				if n := b.api.gets - gets; n != 1 {
					t.Errorf("the claim was read %d times", n)
				}
				end(b)
				b.is("b", topic.Allocated, "test/dev=other", "")
				b.calls(d, "unprepare one", "prepare one")
				b.recorded()
			})
		})
	}
}

// A pod that has ended loses its reservation while its driver takes the claim back: the next one waits for no more than
// that.
func TestAClaimOfACompletedPod(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		d.Set(dratest.Fault{Refuse: map[string]bool{"one": true}})
		b.api.claim("one", "d", "b")
		b.want(podWith("b", "one"))
		b.ended(a)
		b.is("b", topic.Allocating, "", "is being unprepared for a pod that has ended")
		d.Set(dratest.Fault{})
		b.wait(time.Second)
		b.is("a", topic.AllocationReleased, "", "")
		b.is("b", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one", "unprepare one", "unprepare one", "prepare one")
	})
}

// A pod shares its claim with one that came while it waited for another claim: it doesn't wait for that one's end.
func TestAPodThatComesWhileAnotherWaits(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "b")
		b.api.claim("two", "d", "a")
		d := b.driver("d")
		b.want(podWith("a", "two"))
		b.api.claim("two", "d", "b")
		b.want(podWith("b", "one", "two"))
		b.is("b", topic.Allocating, "", "ResourceClaim two is still used")
		b.api.claim("one", "d", "b c")
		b.want(podWith("c", "one"))
		b.is("c", topic.Allocated, "test/dev=one", "")
		b.ended(podWith("a", "two"))
		b.is("b", topic.Allocated, "test/dev=one test/dev=two", "")
		b.calls(d, "prepare two", "prepare one", "unprepare two", "prepare two")
	})
}
