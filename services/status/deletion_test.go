package status

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// A conflict says that somebody wrote the pod at the same time as often as that it is another pod: the deletion is
// asked for again.
func TestADeletionThatIsRefusedWithAConflictIsAskedForAgain(t *testing.T) {
	deleted := metav1.NewTime(t0)
	p := apiPod(func(p *corev1.Pod) { p.DeletionTimestamp = &deleted })
	mirror := apiPod(func(p *corev1.Pod) { p.Name, p.UID = "old-n1", "mirror" }).Pod
	another := apiPod(func(p *corev1.Pod) { p.Name, p.UID = "new-n1", "another" }).Pod
	server := newServer(p.Pod, mirror, another)
	run(t, server, func(r *rig) {
		defer r.start()()
		server.keeps = apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("the object has been modified"))
		finished := patchOf(corev1.PodFailed, exited("app", 143))
		finished.Finished = true
		ref := func(name, uid string) topic.MirrorPod {
			return topic.MirrorPod{Ref: topic.Ref{Namespace: "default", Name: name, UID: uid}, Hash: "h1"}
		}
		r.must(
			r.sources.Set("", topic.Sources{Ready: true}), r.mirrors.Set("mirror", ref("old-n1", "mirror")),
			r.mirrors.Set("replaced", ref("new-n1", "replaced")), r.pods.Set(uid, p), r.patches.Set(uid, finished),
		)
		time.Sleep(time.Second)
		server.set(func() { server.keeps = nil })
		time.Sleep(retryMax)
		synctest.Wait()
		if server.pod("default/web") != nil || server.pod("default/old-n1") != nil {
			t.Error("a pod is still there")
		}
		if server.pod("default/new-n1") == nil {
			t.Error("a pod of the same name with another UID was deleted")
		}
		r.must(r.patches.Delete(uid), r.pods.Delete(uid), r.mirrors.Delete("mirror"))
		r.server.calls()
		time.Sleep(time.Hour)
		r.wantCalls()
	})
}

// Somebody deletes the mirror pod before the answer to its creation is here: podsync's watch may tell that first.
func TestAMirrorPodThatIsDeletedWhileItIsMade(t *testing.T) {
	p, patch := staticPod()
	w := newState()
	w.setSources(topic.Sources{Ready: true, Pods: []string{uid}})
	w.setNode(registeredNode())
	w.setPod(uid, p)
	w.setPatch(uid, patch, t0)
	asked := mustDecide(t, w)
	made := asked.pod.DeepCopy()
	made.UID, made.ResourceVersion = "mirror", "11"
	w.setMirror("mirror", topic.MirrorPod{Ref: topic.RefOf(made), Hash: "h1", Deleting: true, ResourceVersion: "12"})
	if err := w.settle(answer{action: asked, pod: made}); err != nil {
		t.Fatal(err)
	}
	if a, err := w.decide(mirrorKey("mirror"), t1); err != nil || a.verb != doDelete {
		t.Errorf("next is %q, %v; want its deletion, which only the node agent can end", a.verb, err)
	}
}

// An API server that was restored has a mirror pod again that was deleted.
func TestAMirrorPodThatComesBackIsDeletedAgain(t *testing.T) {
	w := newState()
	w.setSources(topic.Sources{Ready: true})
	old := topic.MirrorPod{
		Ref: topic.Ref{Namespace: "default", Name: "web", UID: "mirror"}, Hash: "h1", ResourceVersion: "50",
	}
	w.setMirror("mirror", old)
	deletes := func(when string, want verb) action {
		t.Helper()
		a, err := w.decide(mirrorKey("mirror"), t1)
		if err != nil || a.verb != want {
			t.Errorf("%s: next is %q, %v; want %q", when, a.verb, err, want)
		}
		return a
	}
	if err := w.settle(answer{action: deletes("at first", doDelete)}); err != nil {
		t.Fatal(err)
	}
	old.ResourceVersion = "51"
	w.setMirror("mirror", old)
	deletes("once its deletion was accepted", doNothing)
	old.ResourceVersion = "20"
	w.setMirror("mirror", old)
	deletes("after the restore", doDelete)
}
