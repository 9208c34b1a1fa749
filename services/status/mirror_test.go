package status

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// staticPod is a static pod with its status.
func staticPod() (topic.Pod, topic.PodStatus) {
	p := apiPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationHash: "h1"}
		p.ResourceVersion = ""
	})
	p.Source = topic.SourceFile
	patch := patchOf(corev1.PodRunning, running("app", "one"))
	patch.Source = topic.SourceFile
	return p, patch
}

func registeredNode() corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
}

func TestAStaticPodHasAMirrorPod(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p),
			r.patches.Set(uid, patch))
		r.wantCalls() // the Node isn't registered yet
		r.must(r.node.Set("", registeredNode()))
		r.wantCalls("create default/web", "patch default/web")
		made := server.pod("default/web")
		owner := made.OwnerReferences[0]
		if made.Annotations[annotationMirror] != "h1" || owner.Kind != "Node" || owner.UID != "node-uid" || made.UID == uid {
			t.Errorf("mirror pod %+v", made.ObjectMeta)
		}
		if statusOf(made.Status, corev1.PodReady) != corev1.ConditionTrue {
			t.Error("the mirror pod has no status")
		}
	})
}

func TestADeletedMirrorPodComesBack(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		ref := topic.Ref{Namespace: "default", Name: "web", UID: string(made.UID)}
		r.must(r.mirrors.Set(ref.UID, topic.MirrorPod{Ref: ref, Hash: "h1", Deleting: true}))
		r.server.calls()
		r.must(r.mirrors.Delete(ref.UID))
		r.wantCalls("create default/web", "patch default/web")
	})
}

// A Node with a finalizer stays for a while: what removes the machine deletes its pods, too.
func TestANodeThatIsBeingDeletedGetsNoMirrorPod(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		ref := topic.Ref{Namespace: "default", Name: "web", UID: string(made.UID)}
		leaving, now := registeredNode(), metav1.Now()
		leaving.DeletionTimestamp = &now
		r.must(r.node.Set("", leaving), r.mirrors.Set(ref.UID, topic.MirrorPod{Ref: ref, Hash: "h1", Deleting: true}))
		r.server.calls()
		r.must(r.mirrors.Delete(ref.UID))
		time.Sleep(time.Hour)
		r.wantCalls()
		// Another Node of its name.
		r.must(r.node.Set("", corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid-2"}}))
		r.wantCalls("create default/web", "patch default/web")
	})
}

func TestAnOutdatedMirrorPodIsReplaced(t *testing.T) {
	p, patch := staticPod()
	old := apiPod(func(p *corev1.Pod) { p.UID = "old-mirror" }).Pod
	server := newServer(old)
	run(t, server, func(r *rig) {
		defer r.start()()
		ref := topic.Ref{Namespace: "default", Name: "web", UID: "old-mirror"}
		r.must(r.node.Set("", registeredNode()), r.mirrors.Set("old-mirror", topic.MirrorPod{Ref: ref, Hash: "h0"}))
		r.wantCalls() // sources aren't ready: it may be wanted
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}), r.pods.Set(uid, p),
			r.patches.Set(uid, patch))
		r.must(r.mirrors.Delete("old-mirror"))
		if made := server.pod("default/web"); made == nil || made.UID == "old-mirror" ||
			made.Annotations[annotationMirror] != "h1" {
			t.Errorf("mirror pod %+v", made)
		}
	})
}

// wants has the static pod run on a registered node.
func (r *rig) wants(p topic.Pod, patch topic.PodStatus) {
	r.must(r.node.Set("", registeredNode()), r.sources.Set("", topic.Sources{Ready: true, Pods: []string{uid}}),
		r.pods.Set(uid, p), r.patches.Set(uid, patch))
}

func TestAMirrorPodGoesWithItsManifest(t *testing.T) {
	p, patch := staticPod()
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		r.wants(p, patch)
		made := server.pod("default/web")
		ref := topic.Ref{Namespace: "default", Name: "web", UID: string(made.UID)}
		r.must(r.mirrors.Set(ref.UID, topic.MirrorPod{Ref: ref, Hash: "h1"}))
		p.Lifecycle = topic.Terminating
		r.must(r.pods.Set(uid, p), r.sources.Set("", topic.Sources{Ready: true}))
		if server.pod("default/web") == nil {
			t.Error("the mirror pod went before its pod had stopped")
		}
		p.Lifecycle = topic.Terminated
		r.must(r.pods.Set(uid, p))
		if server.pod("default/web") != nil {
			t.Error("the mirror pod is still there")
		}
	})
}

// A manifest that changes all the time: the mirror pod comes and goes between two deliveries of podsync's watch, which
// then never reports it. What another has deleted meanwhile is found out too.
func TestAMirrorPodThatTheWatchNeverSaw(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprintf("vanishes=%v", vanishes), func(t *testing.T) {
			p, patch := staticPod()
			server := newServer()
			run(t, server, func(r *rig) {
				defer r.start()()
				r.wants(p, patch)
				first := server.pod("default/web").UID
				if vanishes {
					server.set(func() { delete(server.pods, "default/web") })
				}
				p.Lifecycle = topic.Terminated
				r.must(r.pods.Set(uid, p), r.sources.Set("", topic.Sources{Ready: true}))
				time.Sleep(time.Minute)
				if server.pod("default/web") != nil {
					t.Fatal("the mirror pod is still there")
				}
				p.Lifecycle = topic.Syncing
				r.wants(p, patch)
				time.Sleep(time.Minute)
				if made := server.pod("default/web"); made == nil || made.UID == first {
					t.Errorf("mirror pod %+v", made)
				}
				r.server.calls()
				time.Sleep(time.Hour)
				r.wantCalls()
			})
		})
	}
}
