package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/dratest"
)

// A restart calls nobody about pods that were published as allocated; after a boot, or a kubelet, each driver is called
// again.
func TestRestart(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a b")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		b.calls(d, "prepare one")
		b.restart("a")
		gets := b.api.gets
		b.register()
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		if b.api.gets != gets {
			t.Error("the API server was asked")
		}
		b.register("d")
		b.want(podWith("b", "one"))
		b.is("b", topic.Allocated, "test/dev=one", "")
		b.calls(d)
		b.restart()
		b.want(a)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		// What has ended meanwhile is unprepared by what the disk says.
		b.restart("a", "b")
		b.api.set(func() { delete(b.api.claims, "one") })
		b.m.Synced()
		b.ended(a, podWith("b", "one"))
		b.is("a", topic.AllocationReleased, "", "")
		b.is("b", topic.AllocationReleased, "", "")
		b.calls(d, "unprepare one")
		b.disk("-uid-one")
	})
}

// Pods that are gone when the daemon comes back have their claims unprepared, but not before all pods are known.
func TestPodsThatAreGone(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		b.api.claim("two", "d", "b")
		d := b.driver("d")
		b.want(podWith("a", "one"))
		b.want(podWith("b", "two"))
		b.calls(d, "prepare one", "prepare two")
		b.restart("a", "b")
		b.wait(2 * period)
		b.want(podWith("b", "two"))
		b.calls(d)
		b.m.Synced()
		b.wait(0)
		b.calls(d, "unprepare one")
		b.disk("-uid-one", "uid-two")
		// One that is deleted by force while its driver is away is given back when it is there.
		b.register()
		b.m.Forget("b")
		b.wait(10 * period)
		b.disk("uid-two")
		if s, told := b.status["b"]; told && s.Phase != topic.Allocated {
			t.Errorf("the daemon heard %+v of a pod that is gone", s)
		}
		b.register("d")
		b.wait(2 * time.Second)
		b.calls(d, "unprepare two")
		b.disk("-uid-two")
		if len(b.m.Take()) > 0 {
			t.Error("the daemon hears of a pod that is gone")
		}
		b.recorded()
	})
}

// A claim of which it isn't known whether its driver has unprepared it isn't prepared for a pod that comes then.
func TestRestartWhileAPodEnds(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a b")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		d.Set(dratest.Fault{Hang: true})
		b.ended(a)
		b.disk("uid-one", "-test/dev=one")
		b.restart("a")
		d.Set(dratest.Fault{})
		b.calls(d, "prepare one", "unprepare one")
		b.want(podWith("b", "one"))
		b.is("b", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		b.ended(a)
		b.is("a", topic.AllocationReleased, "", "")
		b.calls(d)
	})
}

// A pod that comes back, because what told of its end was wrong, gets its claims again.
func TestAPodThatIsBack(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		a := podWith("a", "one")
		b.want(a)
		d.Set(dratest.Fault{Hang: true})
		b.ended(a)
		b.want(a)
		d.Set(dratest.Fault{})
		b.wait(0)
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one", "unprepare one", "prepare one")
	})
}

// A damaged file is kept for a person; pods that run get their claims, and those that have ended give them back, by
// what the API server says.
func TestADamagedFile(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		b.api.claim("two", "d", "b")
		b.api.claim("other", "d", "x")
		d := b.driver("d")
		b.want(podWith("a", "one"))
		b.want(podWith("b", "two"))
		b.calls(d, "prepare one", "prepare two")
		b.stop()
		path := filepath.Join(b.root, "dra_manager_state")
		if err := os.WriteFile(path, []byte(`{"Data":"x","Checksum":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start("a", "b")
		b.want(podWith("a", "one"))
		b.is("a", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one")
		b.ended(podWith("b", "two", "other", "none"))
		b.is("b", topic.AllocationReleased, "", "")
		b.calls(d, "unprepare two")
		// The API server shows a node no claims of a pod that was deleted by force.
		b.api.set(func() {
			b.api.err = apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "three", errors.New("no such relation"))
		})
		b.ended(podWith("c", "three"))
		b.wait(10 * time.Second)
		if got := b.status["c"]; got.Phase == topic.AllocationReleased {
			t.Errorf("an API server that has just started may refuse it, and it is %+v", got)
		}
		b.wait(3 * time.Minute)
		b.is("c", topic.AllocationReleased, "", "")
		if text, err := os.ReadFile(path + ".damaged"); err != nil || string(text) != `{"Data":"x","Checksum":1}` {
			t.Errorf("kept is %q, %v", text, err)
		}
	})
}

func TestHealth(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		b.want(podWith("a", "one"))
		is := func(want corev1.ResourceHealthStatus, message string) {
			t.Helper()
			got := b.status["a"].Containers["app"].Devices
			if len(got) != 1 || got[0].Health != want || got[0].HealthMessage != message {
				t.Errorf("devices are %+v, want %s %q", got, want, message)
			}
		}
		is(corev1.ResourceHealthStatusUnknown, "")
		d.Report("one unhealthy too hot", "two healthy")
		b.wait(time.Second)
		is(corev1.ResourceHealthStatusUnhealthy, "too hot")
		// A restart of the driver changes nothing if it is short.
		b.crash("d", d)
		b.wait(20 * time.Second)
		is(corev1.ResourceHealthStatusUnhealthy, "too hot")
		d = b.serve("d")
		d.Report("one healthy")
		b.wait(9 * time.Second)
		is(corev1.ResourceHealthStatusHealthy, "")
		b.restart("a")
		b.want(podWith("a", "one"))
		is(corev1.ResourceHealthStatusHealthy, "")
		b.crash("d", d)
		b.wait(31 * time.Second)
		is(corev1.ResourceHealthStatusUnknown, "")
		if s := b.status["a"]; s.Phase != topic.Allocated {
			t.Errorf("the pod is %+v", s)
		}
	})
}

func TestStaleSlices(t *testing.T) {
	run(t, func(b *bed) {
		deleted := func(want ...string) {
			t.Helper()
			if got := b.api.deleted(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("deleted %q, want %q", got, want)
			}
		}
		deleted("spec.nodeName=n")
		d := b.driver("d")
		b.crash("d", d)
		b.wait(25 * time.Second)
		b.serve("d")
		b.wait(2 * time.Minute)
		deleted()
		// A restart of the daemon alone deletes nothing of drivers that are there.
		b.restart()
		deleted("spec.nodeName=n,spec.driver!=d")
		b.wait(2 * time.Minute)
		deleted()
		b.api.set(func() { b.api.deleteErr = context.DeadlineExceeded })
		b.register()
		b.wait(30 * time.Second)
		deleted("spec.nodeName=n,spec.driver=d")
		b.wait(time.Second)
		deleted("spec.nodeName=n,spec.driver=d")
		b.register("d")
		b.wait(time.Hour)
		if n := len(b.api.deleted()); n > 1 {
			t.Errorf("%d deletions though the driver is back", n)
		}
	})
}

// Real sockets and real time, once.
func TestUnixSockets(t *testing.T) {
	b := &bed{t: t, root: t.TempDir()}
	socket := filepath.Join(b.root, "d.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := dratest.Serve(l, dratest.Options{Beta: true})
	defer d.Stop()
	b.api.claims = map[string]*resourceapi.ResourceClaim{}
	b.api.claim("one", "d", "a")
	m, err := New(Config{RootDir: b.root, Node: "n"}, Ports{Claims: &b.api, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	until := func(phase topic.AllocationPhase) {
		t.Helper()
		limit := time.After(30 * time.Second)
		for {
			select {
			case <-m.Changes():
				if m.Take()["a"].Phase == phase {
					return
				}
			case <-limit:
				t.Fatalf("the pod isn't %s", phase)
			}
		}
	}
	m.Want(podWith("a", "one"), Admitted)
	m.Registered(map[string]topic.Plugin{"DRAPlugin.d": {
		Type: topic.DRAPlugin, Name: "d",
		PluginEndpoint: topic.PluginEndpoint{Endpoint: socket, Instance: "1", Versions: []string{"v1beta1.DRAPlugin"}},
	}})
	until(topic.Allocated)
	m.Ended(podWith("a", "one"))
	until(topic.AllocationReleased)
	b.calls(d, "prepare one", "unprepare one")
}

// A pod goes on as soon as what it waits for is over, also if it came first.
func TestAClaimThatIsMadeAgain(t *testing.T) {
	run(t, func(b *bed) {
		b.api.claim("one", "d", "a")
		d := b.driver("d")
		b.want(podWith("c", "one"))
		b.want(podWith("a", "one"))
		b.api.claim("one", "d", "c")
		b.api.set(func() { b.api.claims["one"].UID = "new" })
		b.wait(2 * time.Second)
		b.is("c", topic.Allocating, "", "old ResourceClaim with same name one and different UID uid-one still exists")
		b.ended(podWith("a", "one"))
		b.is("c", topic.Allocated, "test/dev=one", "")
		b.calls(d, "prepare one", "unprepare one", "prepare one")
		b.disk("new", "-uid-one")
	})
}

// A pod that is gone and comes again under its UID, before all is given back that it had, is told of anew: the daemon
// has forgotten what it had heard.
func TestAPodThatIsForgottenAndBack(t *testing.T) {
	for name, forget := range map[string]func(b *bed){
		"at once":                    func(b *bed) { b.m.Forget("a") },
		"when that was heard":        func(b *bed) { b.m.Forget("a"); b.wait(0) },
		"and its end was said first": func(b *bed) { b.m.Ended(podWith("a", "one")); b.m.Forget("a") },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.api.claim("one", "d", "a")
				d := b.driver("d")
				b.want(podWith("a", "one"))
				b.is("a", topic.Allocated, "test/dev=one", "")
				b.crash("d", d)
				b.register() // so that the claim isn't unprepared meanwhile
				forget(b)
				delete(b.status, "a")
				b.want(podWith("a", "one"))
				b.is("a", topic.Allocated, "test/dev=one", "")
			})
		})
	}
}

// Nobody hears of a pod after having said that it is gone.
func TestForgottenPods(t *testing.T) {
	b := newMailbox()
	b.tell("a", Status{Phase: topic.Allocated})
	b.tell("b", Status{Phase: topic.Allocated})
	b.Forget("a")
	b.tell("a", Status{Phase: topic.AllocationReleased})
	if all := b.Take(); len(all) != 1 || all["b"].Phase != topic.Allocated {
		t.Errorf("%v", all)
	}
	// What is said of its earlier life isn't heard in the next one.
	b.Want(podWith("a"), Admitted)
	b.Want(podWith("a"), Admitted)
	b.tell("a", Status{Phase: topic.Allocated})
	if all := b.Take(); len(all) != 0 {
		t.Errorf("%v", all)
	}
	if l := b.next(); len(l.order) != 1 || l.words["a"].pod == nil || !l.words["a"].again {
		t.Errorf("%v", l)
	}
	b.tell("a", Status{Phase: topic.Allocating})
	if all := b.Take(); len(all) != 1 {
		t.Errorf("%v", all)
	}
}
