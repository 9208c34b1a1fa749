package dra

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

// A driver is called once for all claims of a pod, with the disk knowing of it before.
func TestLife(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		b.api.claim("two", "d", "a")
		d := b.driver("d")
		d.Set(dratest.Fault{Before: func(string) { b.disk(`uid-one`, `uid-two`, `\"a\":{}`) }})
		a := podWith("a", "one", "two")
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one test/dev=two", "")
		b.calls(d, "prepare one two")
		b.disk("test/dev=one", "test/dev=two")
		if got := b.status["a"].Containers["app"].Devices; len(got) != 2 || got[0].Resource != "claim:my-one" ||
			got[0].ID != "test/dev=one" || got[0].Health != corev1.ResourceHealthStatusUnknown {
			t.Errorf("devices %+v", got)
		}
		if got := b.status["a"].Uses["app"]; len(got) != 2 || got[1].Name != "two" || got[1].Devices[0].Driver != "d" {
			t.Errorf("uses %+v", got)
		}
		b.want(a)
		b.wait(2 * period)
		b.calls(d)
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d, "unprepare one two")
		b.disk("-uid-one", "-uid-two")
		b.ended(a)
		b.m.Forget("a")
		b.wait(2 * period)
		b.calls(d)
		b.recorded()
	})
}

func TestPodsWithoutClaims(t *testing.T) {
	run(t, func(b *bed) {
		a := podWith("a")
		if Used(a) || !Used(podWith("a", "one")) {
			t.Error("it isn't known what has claims")
		}
		b.want(a)
		b.is("a", topic.Allocated, "", "")
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.ended(podWith("never seen", "one"))
		b.is("never seen", topic.AllocationReleased, "", "")
	})
}

func TestSharedClaims(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a b c")
		d := b.driver("d")
		a, c := podWith("a", "one"), podWith("c", "one")
		b.want(a, podWith("b", "one"))
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.is("b", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d)
		b.disk("-"+`\"a\":{}`, `\"b\":{}`)
		// While the last one's is unprepared, another pod waits, and has it prepared again.
		d.Set(dratest.Fault{Hang: true})
		b.ended(podWith("b", "one"))
		b.want(c)
		b.is("c", topic.Allocating, "", "ResourceClaim one is being unprepared")
		d.Set(dratest.Fault{})
		b.wait(0)
		b.is("b", topic.AllocationReleased, "", "")
		b.is("c", topic.Allocated, "test/dev=one", "")
		b.calls(d, "unprepare one", "prepare one")
	})
}

func TestADriverThatIsNotThere(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d e", "a")
		d := b.serve("d")
		b.register("d")
		b.want(podWith("a", "one"))
		b.is("a", topic.Allocating, "", "DRA driver e is not registered")
		b.recorded("a Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: " +
			"prepare dynamic resources: DRA driver e is not registered")
		b.calls(d)
		b.disk("-uid-one")
		b.wait(10 * time.Minute)
		b.events.list = nil
		e := b.serve("e")
		b.register("d", "e")
		b.wait(2 * time.Second)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		b.calls(e, "prepare one")
		b.recorded()
	})
}

// A pod whose driver never comes can be deleted.
func TestAPodWithoutItsDriverEnds(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		a := podWith("a", "one")
		b.want(a)
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
	})
}

// A driver that hangs holds up only pods with its claims, also where they share a claim with one that it holds up.
func TestADriverThatHangs(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("slow", "d", "a")
		b.api.claim("shared", "e", "a b")
		b.api.claim("fast", "e", "c")
		d, e := b.serve("d"), b.serve("e")
		b.register("d", "e")
		b.wait(2 * time.Second)
		d.Set(dratest.Fault{Hang: true})
		b.want(podWith("a", "slow", "shared"))
		b.is("a", topic.Allocating, "", "waiting for NodePrepareResources of DRA driver d, e")
		b.want(podWith("b", "shared"), podWith("c", "fast"))
		b.is("b", topic.Allocated, "test/dev=shared", "")
		b.is("c", topic.Allocated, "test/dev=fast", "")
		b.calls(e, "prepare shared", "prepare fast")
		b.wait(44 * time.Second)
		b.recorded()
		b.wait(time.Second)
		b.recorded("code = DeadlineExceeded desc = the driver has not answered for 45s (DRA driver d)")
		b.is("a", topic.Allocating, "", "has not answered for 45s")
		d.Set(dratest.Fault{})
		b.wait(time.Minute)
		b.is("a", topic.Allocated, "test/dev=slow test/dev=shared", "")
		b.calls(d, "prepare slow", "prepare slow")
		b.calls(e)
	})
}

func TestADriverThatFails(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		b.api.claim("two", "d", "a")
		b.api.claim("three", "d", "a")
		d := b.driver("d")
		d.Set(dratest.Fault{Refuse: map[string]bool{"two": true}, Skip: map[string]bool{"three": true}})
		b.want(podWith("a", "one", "two", "three"))
		text := "NodePrepareResources skipped 1 ResourceClaims, " +
			"NodePrepareResources failed for ResourceClaim two: refused two"
		b.is("a", topic.Allocating, "", text)
		b.recorded(text)
		b.wait(time.Second)
		d.Set(dratest.Fault{Change: func(r *drav1.NodePrepareResourcesResponse) {
			r.Claims["stranger"] = &drav1.NodePrepareResourceResponse{}
		}})
		b.recorded(text)
		b.wait(2 * time.Second)
		b.is("a", topic.Allocating, "", `NodePrepareResources returned result for unknown claim UID "stranger"`)
		d.Set(dratest.Fault{Err: errors.New("out of order")})
		b.wait(4 * time.Second)
		b.is("a", topic.Allocating, "", "out of order")
		d.Set(dratest.Fault{})
		b.wait(8 * time.Second)
		b.is("a", topic.Allocated, "test/dev=one test/dev=two test/dev=three", "")
		// What has succeeded once isn't asked for again.
		again := "prepare two three"
		b.calls(d, "prepare one two three", again, again, again, again)
	})
}

func TestTheAPIServer(t *testing.T) {
	run(t, func(b *bed) {
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.is("a", topic.Allocating, "", `fetch ResourceClaim one: resourceclaims.resource.k8s.io "one" not found`)
		b.api.claim("one", "d", "x")
		b.wait(2 * time.Second)
		b.is("a", topic.Allocating, "", "pod a (a) is not allowed to use ResourceClaim one (uid-one)")
		b.api.set(func() { b.api.hang = true })
		b.wait(35 * time.Second)
		b.is("a", topic.Allocating, "", "fetch ResourceClaim one: no answer for 30s")
		b.wait(4 * time.Second) // it is being read again
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d)
		b.disk("-uid-one")
	})
}

// What a pod's update says later counts.
func TestAClaimThatIsMadeLater(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("made", "d", "a")
		b.driver("d")
		template, name := "t", "made"
		a := podWith("a")
		a.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "my", ResourceClaimTemplateName: &template}}
		a.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "my"}}
		b.want(a)
		b.is("a", topic.Allocating, "", `pod "ns/a": ResourceClaim not created yet`)
		later := a.DeepCopy()
		later.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "my", ResourceClaimName: &name}}
		b.want(later)
		b.is("a", topic.Allocating, "", "was not created for Pod ns/a (Pod is not owner)")
		yes := true
		b.api.set(func() {
			b.api.claims["made"].OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: a.Name, UID: a.UID, Controller: &yes,
			}}
		})
		b.wait(5 * time.Second)
		b.is("a", topic.Allocated, "test/dev=made", "")
		// An update that doesn't know the claim takes nothing away.
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=made", "")
	})
}

// A pod that ends while its driver is called is released after the call, which isn't broken off.
func TestAPodEndsDuringACall(t *testing.T) {
	for _, fault := range []dratest.Fault{{}, {Err: errors.New("no")}} {
		run(t, func(b *bed) {
			b.api.claim("one", "d", "a")
			d := b.driver("d")
			fault.Hang = true
			d.Set(fault)
			a := podWith("a", "one")
			b.want(a)
			b.ended(a)
			b.wait(10 * time.Second)
			b.calls(d, "prepare one")
			d.Set(dratest.Fault{})
			b.wait(0)
			b.calls(d, "unprepare one")
			b.is("a", topic.AllocationReleased, "", "")
			b.recorded()
		})
	}
}

func TestADriverThatIsGoneWhenAPodEnds(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d e", "a")
		d, e := b.serve("d"), b.serve("e")
		b.register("d", "e")
		a := podWith("a", "one")
		b.want(a)
		b.calls(d, "prepare one")
		b.calls(e, "prepare one")
		b.register("d")
		b.ended(a)
		b.is("a", topic.Allocated, "test/dev=one", "DRA driver e is not registered")
		b.recorded("a Warning FailedUnprepareDynamicResources Failed to unprepare dynamic resources: " +
			"unprepare dynamic resources: DRA driver e is not registered: the pod stays")
		b.calls(d, "unprepare one")
		b.wait(10 * time.Minute)
		b.disk("uid-one")
		b.register("d", "e")
		b.wait(2 * time.Second)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d)
		b.calls(e, "unprepare one")
		b.disk("-uid-one")
	})
}

func TestFailuresOfUnprepare(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		d.Set(dratest.Fault{Refuse: map[string]bool{"one": true}})
		b.ended(a)
		b.is("a", topic.Allocated, "test/dev=one", "NodeUnprepareResources failed for ResourceClaim one: refused one")
		d.Set(dratest.Fault{Skip: map[string]bool{"one": true}})
		b.wait(time.Second)
		b.is("a", topic.Allocated, "test/dev=one", "NodeUnprepareResources skipped 1 ResourceClaims")
		d.Set(dratest.Fault{Hang: true})
		b.wait(2*time.Second + 45*time.Second)
		b.is("a", topic.Allocated, "test/dev=one", "has not answered for 45s")
		b.recorded("refused one", "skipped", "45s")
		d.Set(dratest.Fault{})
		b.wait(4 * time.Second)
		b.is("a", topic.AllocationReleased, "", "")
	})
}

// Nobody is called as long as the disk doesn't know of it, and no pod hears of what the disk doesn't know.
func TestAFullDisk(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		away := b.root + ".away"
		move := func(from, to string) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		move(b.root, away)
		a := podWith("a", "one")
		b.want(a)
		b.is("a", topic.Allocating, "", "write the claims that are prepared")
		b.calls(d)
		move(away, b.root)
		d.Set(dratest.Fault{Before: func(string) { move(b.root, away) }})
		b.wait(time.Second)
		b.is("a", topic.Allocating, "", "write the claims that are prepared")
		b.calls(d, "prepare one")
		b.wait(2 * time.Second)
		b.is("a", topic.Allocating, "", "write the claims that are prepared")
		move(away, b.root)
		b.wait(4 * time.Second)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.disk("test/dev=one")
		b.calls(d)
		// The end isn't said before the disk knows of it either.
		d.Set(dratest.Fault{Before: func(string) { move(b.root, away) }})
		b.ended(a)
		b.is("a", topic.Allocated, "test/dev=one", "write the claims that are prepared")
		move(away, b.root)
		b.wait(time.Second)
		b.is("a", topic.AllocationReleased, "", "")
		b.disk("-uid-one")
		b.calls(d, "unprepare one")
	})
}

func TestUsedMetrics(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		used := func() []string {
			families, err := b.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, f := range families {
				for _, m := range f.GetMetric() {
					var labels []string
					for _, l := range m.GetLabel() {
						labels = append(labels, l.GetValue())
					}
					if f.GetName() == "dra_resource_claims_in_use" && m.GetGauge().GetValue() == 0 {
						labels = append(labels, "0")
					}
					all = append(all, strings.TrimPrefix(f.GetName(), "dra_")+" "+strings.Join(labels, " "))
				}
			}
			return all
		}
		want := []string{
			"grpc_operations_duration_seconds d OK /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
			"operations_duration_seconds false PrepareResources",
			"resource_claims_in_use <any>", "resource_claims_in_use d",
		}
		if got := used(); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		b.ended(a)
		if got := used(); !slices.Contains(got, "resource_claims_in_use <any> 0") || len(got) != 5 {
			t.Errorf("%q", got)
		}
	})
}
