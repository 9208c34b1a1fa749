package podsync

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/cri/observe"
)

const (
	fromAPI  = topic.SourceAPI
	fromFile = topic.SourceFile
	fromURL  = topic.SourceHTTP
)

func TestNothingIsAdmittedWithoutNodeFacts(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.deliver(fromAPI, pod("web", "u1"))
		b.pass(2 * housekeepingEvery)
		if state, message := b.health(); state != topic.Degraded || !strings.Contains(message, "node.object") {
			t.Errorf("health is %s %q, want degraded for want of node.object", state, message)
		}
		if _, known := get(b, topic.PodUpdate, "u1"); known || b.fake.Calls("RunPodSandbox") > 0 {
			t.Error("a pod was admitted before anything was known of the node")
		}
		b.node(110)
		b.wantRunning("web")
		if state, message := b.health(); state != topic.Healthy || message != "" {
			t.Errorf("health is %s %q, want healthy", state, message)
		}
	})
}

// The node's own draft of its Node lacks what others have put on it; a pod that is judged by it may fail for good.
func TestPodsOfTheAPIAreJudgedByTheRegisteredNode(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.nodeOf("", 110)
		picky := pod("picky", "u1")
		picky.Spec.NodeSelector = map[string]string{"disk": "fast"}
		b.deliver(fromAPI, picky)
		b.deliver(fromFile, pod("proxy", "u2"))
		b.pass(2 * housekeepingEvery)
		b.wantRunning("proxy")
		if s, known := get(b, topic.StatusPatch, "u1"); known {
			t.Errorf("the pod of the API is %s (%s) before its Node is known", s.Status.Phase, s.Status.Reason)
		}
		if state, message := b.health(); state != topic.Degraded || !strings.Contains(message, "node.object") {
			t.Errorf("health is %s %q, want degraded for want of the Node", state, message)
		}
		b.labels = map[string]string{"disk": "fast"}
		b.node(110)
		b.wantRunning("picky", "proxy")
		if state, message := b.health(); state != topic.Healthy {
			t.Errorf("health is %s %q, want healthy", state, message)
		}
	})
}

// orphan makes a sandbox in the runtime that nobody has asked for.
func (b *bed) orphan(name, uid string) {
	b.t.Helper()
	p := pod(name, uid)
	_, err := b.client.RunPodSandbox(b.t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: uid}, Labels: labels.Sandbox(p),
	}, "")
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) sandboxes() int {
	b.t.Helper()
	list, err := b.client.ListPodSandbox(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list)
}

func TestNothingIsRemovedBeforeEverySourceHasDelivered(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.orphan("stranger", "u0")
		set(b, topic.PodUpdate, "u9", topic.Pod{Pod: pod("gone", "u9"), Source: fromAPI, Lifecycle: topic.Syncing})
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromAPI, pod("web", "u1"))
		b.deliver(fromAPI)
		b.pass(2 * housekeepingEvery)
		b.wantRunning("web")
		if n := b.fake.Calls("StopPodSandbox"); n > 0 {
			t.Errorf("%d sandboxes were stopped while a source had not delivered", n)
		}
		if _, known := get(b, topic.PodUpdate, "u9"); !known {
			t.Error("a pod of an earlier run was forgotten while a source had not delivered")
		}
		if s, _ := get(b, topic.PodSources, ""); s.Ready || len(s.Waiting) != 1 || s.Waiting[0] != fromFile {
			t.Errorf("pod.sources is %+v, want it to wait for the file source", s)
		}

		b.deliver(fromFile)
		b.wantRunning()
		if n := b.sandboxes(); n != 0 {
			t.Errorf("%d sandboxes are left of pods that nobody wants", n)
		}
		for _, uid := range []string{"u0", "u1", "u9"} {
			if _, known := get(b, topic.PodUpdate, uid); known {
				t.Errorf("the bus still has pod %s, which is gone", uid)
			}
		}
		if s, _ := get(b, topic.PodSources, ""); !s.Ready || len(s.Pods) != 0 {
			t.Errorf("pod.sources is %+v, want it ready and without pods", s)
		}
	})
}

func TestAPodThatItsSourceDropsIsRemoved(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		web, db := pod("web", "u1"), pod("db", "u2")
		b.deliver(fromAPI, web, db)
		b.wantRunning("db", "web")
		b.deliver(fromAPI, web)
		b.wantRunning("web")
		if _, known := get(b, topic.PodUpdate, "u2"); known || b.sandboxes() != 1 {
			t.Errorf("pod db is on the bus: %v; %d sandboxes, want one", known, b.sandboxes())
		}
	})
}

func TestAPodThatWasAdmittedIsNotJudgedAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		// It was admitted, and podsync was stopped before its sandbox was there.
		set(b, topic.PodUpdate, "u1", topic.Pod{
			Pod: pod("admitted", "u1"), Source: fromAPI, Lifecycle: topic.Syncing,
			FirstSeen: time.Now(),
		})
		b.start(fromAPI)
		b.node(0)
		b.deliver(fromAPI, pod("admitted", "u1"), pod("new", "u2"))
		b.wantRunning("admitted")
		b.wantFailed("u2", "OutOfpods")
	})
}

// The bus may have nothing any more, or have had nothing ever: the pods were a kubelet's.
func TestARestartChangesNoPod(t *testing.T) {
	for name, between := range map[string]func(*bed){
		"with the bus's state": func(*bed) {},
		"without it":           func(b *bed) { b.bus.LoseState() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				stop := b.start(fromAPI)
				b.node(110)
				b.deliver(fromAPI, pod("web", "u1"))
				stop()
				between(b)
				created := b.fake.Calls("CreateContainer")
				b.start(fromAPI)
				b.node(0)
				b.deliver(fromAPI, pod("web", "u1"))
				b.wantRunning("web")
				if n := b.fake.Calls("CreateContainer"); n != created || b.fake.Calls("StopContainer") > 0 {
					t.Errorf("%d containers were created by the restart and %d stopped, want none", n-created,
						b.fake.Calls("StopContainer"))
				}
			})
		})
	}
}

func TestARejectedPodFails(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		p := pod("elsewhere", "u1")
		p.Spec.NodeSelector = map[string]string{"disk": "fast"}
		b.deliver(fromAPI, p)
		b.wantFailed("u1", "NodeAffinity")
		s, _ := get(b, topic.StatusPatch, "u1")
		if !strings.HasPrefix(s.Status.Message, "Pod was rejected: Predicate NodeAffinity failed") || !s.Finished {
			t.Errorf("message %q, finished %v; want the predicate, and finished", s.Status.Message, s.Finished)
		}
		if e := b.event("NodeAffinity"); e.Type != corev1.EventTypeWarning || e.UID != "u1" {
			t.Errorf("Event %+v, want a warning on the pod", e)
		}
		if u, _ := get(b, topic.PodUpdate, "u1"); u.Refused != "NodeAffinity" {
			t.Errorf("the others are told that it is refused for %q", u.Refused)
		}
		if n := b.fake.Calls("RunPodSandbox"); n > 0 {
			t.Errorf("%d sandboxes for a pod that was refused", n)
		}
	})
}

func TestAHostPortIsGivenOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		first, second := onPort(pod("first", "u1"), 8080), onPort(pod("second", "u2"), 8080)
		b.deliver(fromAPI, first, second)
		b.wantRunning("first")
		b.wantFailed("u2", "NodePorts")

		// The port is free again once its pod has gone.
		b.deliver(fromAPI)
		b.deliver(fromAPI, onPort(pod("third", "u3"), 8080))
		b.wantRunning("third")
	})
}

func TestANameIsGivenToOneStaticPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile, fromURL)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "u1"))
		b.deliver(fromURL, pod("proxy", "u2"))
		b.wantRunning("proxy")
		if e := b.event("InvalidManifest"); e.Kind != "Node" || !strings.Contains(e.Message, "default/proxy") ||
			!strings.Contains(e.Message, `"file"`) {
			t.Errorf("Event %+v, want one on the node that names the pod and the other source", e)
		}
		if _, known := get(b, topic.PodUpdate, "u2"); known {
			t.Error("both pods of one name were admitted")
		}
	})
}

// A changed manifest is a pod with another UID. The new one begins when the old one has left its name, ports and
// directories.
func TestAStaticPodWaitsForTheOneItReplaces(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(110)
		b.deliver(fromFile, onPort(pod("proxy", "u1"), 8080))
		b.wantRunning("proxy")
		list, err := b.client.ListContainers(b.t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d containers, %v", len(list), err)
		}
		b.fake.Stubborn(list[0].GetId())

		b.deliver(fromFile, onPort(pod("proxy", "u2"), 8080))
		b.pass(20 * time.Second)
		if n := b.fake.Calls("RunPodSandbox"); n != 1 {
			t.Errorf("%d sandboxes while the old pod stops, want its own", n)
		}
		b.pass(20 * time.Second)
		b.wantRunning("proxy")
		if _, known := get(b, topic.PodUpdate, "u1"); known {
			t.Error("the old pod is still there")
		}
		if p, _ := get(b, topic.PodUpdate, "u2"); p.Lifecycle != topic.Syncing {
			t.Errorf("the new pod is %q, want it to sync", p.Lifecycle)
		}
	})
}

// The manifest was changed while podsync was down, and the API server can't be reached: the new pod must not run next
// to the old.
func TestAStaticPodReplacesOneOfAnEarlierRun(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromFile, fromAPI)
		b.node(110)
		b.deliver(fromFile, onPort(pod("proxy", "u1"), 8080), pod("other", "o1"))
		b.wantRunning("other", "proxy")
		stop()

		b.start(fromFile, fromAPI)
		b.deliver(fromFile, onPort(pod("proxy", "u2"), 8080), pod("other", "o1"))
		b.wantRunning("other", "proxy")
		if _, known := get(b, topic.PodUpdate, "u1"); known {
			t.Error("the old pod is still there")
		}
		if p, _ := get(b, topic.PodUpdate, "u2"); p.Lifecycle != topic.Syncing {
			t.Errorf("the new pod is %q, want it to sync", p.Lifecycle)
		}
		if n := b.fake.Calls("RunPodSandbox"); n != 3 {
			t.Errorf("%d sandboxes, want three: the other pod runs on", n)
		}
	})
}

// A manifest that is moved away and back is the same UID and another life: what pleg still says of the first doesn't
// count.
func TestAStaticPodThatComesBackStartsAnew(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(110)
		once := pod("proxy", "u1")
		once.Spec.RestartPolicy = corev1.RestartPolicyNever
		b.deliver(fromFile, once)
		b.wantRunning("proxy")
		seen, err := observe.Pod(b.t.Context(), b.client, "u1")
		if err != nil {
			b.t.Fatal(err)
		}
		seen.Containers[0].State, seen.Sandboxes[0].Ready = topic.ContainerExited, false
		set(b, topic.PLEGEvent, "u1", seen)
		b.deliver(fromFile)
		b.wantRunning()
		b.deliver(fromFile, once)
		b.wantRunning("proxy")
		seen.Errors = []string{"said once more"}
		set(b, topic.PLEGEvent, "u1", seen)
		b.wantRunning("proxy")
		if p, _ := get(b, topic.PodUpdate, "u1"); p.Lifecycle != topic.Syncing {
			t.Errorf("the pod is %q, want it to sync", p.Lifecycle)
		}
		if n := b.fake.Calls("RunPodSandbox"); n != 2 {
			t.Errorf("%d sandboxes, want one for each life", n)
		}
	})
}

// What an earlier pod left is removed next to the loop; a pod with its UID waits for that.
func TestLeftoversAreSweptBeforeAPodComesBack(t *testing.T) {
	inBubble(t, func(b *bed) {
		dir := filepath.Join(b.dir, "kubelet", "pods", "u1")
		left := filepath.Join(dir, "volumes", "kubernetes.io~empty-dir", "d", "file")
		if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o750), os.WriteFile(left, nil, 0o600)); err != nil {
			b.t.Fatal(err)
		}
		b.start(fromFile)
		b.node(110)
		b.deliver(fromFile)
		b.deliver(fromFile, pod("proxy", "u1"))
		b.wantRunning("proxy")
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", left, err)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the new pod's directory: %v", err)
		}
	})
}

func TestACriticalPodTakesThePlaceOfAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(1)
		plain, critical := pod("plain", "u1"), pod("critical", "u2")
		priority := int32(2000000000)
		critical.Spec.Priority = &priority
		b.deliver(fromAPI, plain)
		b.wantRunning("plain")
		b.deliver(fromAPI, plain, critical)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
	})
}

// The API server has not heard of it yet when podsync starts again: what the bus has kept counts.
func TestAPreemptionGoesOnAfterARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(1)
		plain, critical := pod("plain", "u1"), pod("critical", "u2")
		priority := int32(2000000000)
		critical.Spec.Priority = &priority
		b.deliver(fromAPI, plain)
		list, err := b.client.ListContainers(b.t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d containers, %v", len(list), err)
		}
		b.fake.Stubborn(list[0].GetId())
		b.deliver(fromAPI, plain, critical)
		stop()
		b.start(fromAPI)
		b.node(1)
		b.deliver(fromAPI, plain, critical)
		b.pass(time.Minute)
		b.wantRunning("critical")
		b.wantFailed("u1", "Preempting")
	})
}
