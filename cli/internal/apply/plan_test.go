package apply

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

func doc(namespace, name, more string) Document {
	return Document{
		Where: "f", Namespace: namespace, Name: name,
		Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: " + namespace + "}\n" + more),
	}
}

// own is the file of a pod that was applied; foreign one that somebody else has written.
func own(namespace, name, more string) Manifest {
	return manifestOf(fileOf(namespace, name), content(doc(namespace, name, more)))
}

func foreign(file, namespace, name string) Manifest {
	return manifestOf(file, doc(namespace, name, "").Data)
}

func live(uid, namespace, name string, source topic.Source) topic.Pod {
	return topic.Pod{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
			Spec:       corev1.PodSpec{NodeName: "Node-1"},
		},
		Source: source, Lifecycle: topic.Syncing,
	}
}

func lines(changes []Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, string(c.Action)+" "+c.File)
	}
	return strings.Join(all, "; ")
}

func TestPlan(t *testing.T) {
	there := []Manifest{
		own("default", "same", ""), own("default", "old", "spec: {}\n"), foreign("etcd.yaml", "kube-system", "etcd"),
		foreign(fileOf("default", "squat"), "default", "other"), manifestOf("notes.txt", []byte("a: b: c")),
		manifestOf(fileOf("default", "broken"), []byte(header+"a: b: c")),
	}
	copied := own("default", "copied", "")
	copied.File = "copy.yaml"
	there = append(there, copied)
	updates := map[string]topic.Pod{
		"u1": live("u1", "default", "web-node-1", topic.SourceAPI),
		"u2": live("u2", "default", "url-node-1", topic.SourceHTTP),
		"u3": live("u3", "default", "going-node-1", topic.SourceFile), "u4": {Source: topic.SourceAPI},
	}
	for name, c := range map[string]struct {
		docs []Document
		want string
		// problem is a part of the error.
		problem string
	}{
		"new":             {docs: []Document{doc("shop", "web", "")}, want: "created kubelot.shop.web.yaml"},
		"unchanged":       {docs: []Document{doc("default", "same", "")}, want: "unchanged kubelot.default.same.yaml"},
		"changed":         {docs: []Document{doc("default", "old", "")}, want: "changed kubelot.default.old.yaml"},
		"broken before":   {docs: []Document{doc("default", "broken", "")}, want: "changed kubelot.default.broken.yaml"},
		"being removed":   {docs: []Document{doc("default", "going", "")}, want: "created kubelot.default.going.yaml"},
		"other namespace": {docs: []Document{doc("default", "etcd", "")}, want: "created kubelot.default.etcd.yaml"},
		"several": {
			docs: []Document{doc("a", "x", ""), doc("b", "x", "")},
			want: "created kubelot.a.x.yaml; created kubelot.b.x.yaml",
		},
		"twice": {
			docs: []Document{doc("a", "x", ""), doc("a", "x", "spec: {}\n")}, want: "created kubelot.a.x.yaml",
			problem: "f: pod a/x is in f already",
		},
		"foreign manifest": {
			docs:    []Document{doc("kube-system", "etcd", "")},
			problem: "pod kube-system/etcd: the manifest etcd.yaml, which kubelot apply hasn't written, has a pod of that name",
		},
		"foreign file": {
			docs:    []Document{doc("default", "squat", "")},
			problem: "its file kubelot.default.squat.yaml is there already, and kubelot apply hasn't written it",
		},
		"copy":     {docs: []Document{doc("default", "copied", "")}, problem: "the manifest copy.yaml"},
		"from URL": {docs: []Document{doc("default", "url", "")}, problem: "a static pod of staticPodURL has that name"},
		"from API": {docs: []Document{doc("default", "web", "")}, problem: "a pod of the API server is called web-node-1"},
		"long":     {docs: []Document{doc("a", strings.Repeat("x", 250), "")}, problem: "too long: give the pod"},
	} {
		changes, err := Plan(c.docs, there, updates)
		if got := lines(changes); got != c.want {
			t.Errorf("%s: planned %q, want %q", name, got, c.want)
		}
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: error %v, want %q", name, err, c.problem)
		}
	}
}

func TestRemovals(t *testing.T) {
	there := []Manifest{
		own("default", "web", ""), own("a", "twin", ""), own("b", "twin", ""), foreign("etcd.yaml", "kube-system", "etcd"),
	}
	updates := map[string]topic.Pod{
		"u1": live("u1", "default", "web-node-1", topic.SourceFile),
		"u2": live("u2", "default", "url-node-1", topic.SourceHTTP),
		"u3": live("u3", "shop", "cart-1", topic.SourceAPI), "u4": live("u4", "default", "gone-node-1", topic.SourceFile),
		"u5": {Source: topic.SourceAPI},
	}
	nowhere := Target{Where: "f", Namespace: "x", Name: "web"}
	const web = "deleted kubelot.default.web.yaml"
	const absent = "the node has no manifest of such a pod"
	for name, c := range map[string]struct {
		targets []Target
		absent  bool
		want    string
		problem string
	}{
		"name":              {targets: []Target{Named("web")}, want: web},
		"pod's name":        {targets: []Target{Named("web-node-1")}, want: web},
		"namespace":         {targets: []Target{Named("b/twin")}, want: "deleted kubelot.b.twin.yaml"},
		"twice":             {targets: []Target{Named("web"), Named("default/web")}, want: web},
		"two namespaces":    {targets: []Target{Named("twin")}, problem: "pod twin: it is in the namespaces a and b"},
		"foreign":           {targets: []Target{Named("etcd")}, problem: "hasn't written its manifest etcd.yaml"},
		"from URL":          {targets: []Target{Named("url")}, problem: "it comes from staticPodURL"},
		"from API":          {targets: []Target{Named("shop/cart-1")}, problem: "kubectl delete pod -n shop cart-1"},
		"going":             {targets: []Target{Named("gone")}, problem: absent},
		"absent":            {targets: []Target{nowhere}, problem: "f: pod x/web: " + absent},
		"absent is allowed": {targets: []Target{Named("nobody"), Named("web")}, absent: true, want: web},
		"foreign is not":    {targets: []Target{Named("etcd")}, absent: true, problem: "etcd.yaml"},
	} {
		changes, err := Removals(c.targets, there, updates, c.absent)
		if got := lines(changes); got != c.want {
			t.Errorf("%s: planned %q, want %q", name, got, c.want)
		}
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: error %v, want %q", name, err, c.problem)
		}
	}
	if refs := Of(updates, "default", "web"); len(refs) != 1 || refs[0].UID != "u1" {
		t.Errorf("the pods of default/web are %v", refs)
	}
}
