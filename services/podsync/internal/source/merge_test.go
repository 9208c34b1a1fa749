package source

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func pod(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
}

func names(d Desired) string {
	var n []string
	for _, p := range d.Pods {
		n = append(n, string(p.Source)+":"+p.Pod.Name)
	}
	return strings.Join(n, " ")
}

func TestMergeIsReadyOnceAllSourcesDelivered(t *testing.T) {
	m := NewMerge(topic.SourceAPI, topic.SourceFile)
	if m.Ready() || len(m.Waiting()) != 2 {
		t.Fatalf("waiting for %v", m.Waiting())
	}
	if m.Set(Set{Source: topic.SourceAPI, Err: errors.New("down")}, noon) || m.Set(Set{Source: topic.SourceHTTP}, noon) {
		t.Error("a failed or unexpected set was taken")
	}
	m.Set(Set{Source: topic.SourceFile}, noon)
	if m.Ready() || m.Waiting()[0] != topic.SourceAPI {
		t.Errorf("waiting for %v", m.Waiting())
	}
	m.Set(Set{Source: topic.SourceAPI}, noon)
	if !m.Ready() {
		t.Errorf("waiting for %v", m.Waiting())
	}
}

func TestMergeKeepsArrivalOrderAndFirstSeen(t *testing.T) {
	m := NewMerge(topic.SourceAPI, topic.SourceFile)
	a, b, c := pod("a", "1"), pod("b", "2"), pod("c", "3")
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{b}}, noon)
	m.Set(Set{Source: topic.SourceFile, Pods: []*corev1.Pod{c}}, noon.Add(time.Second))
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{a, b}}, noon.Add(2*time.Second))
	before := m.Desired()
	if got := names(before); got != "api:b file:c api:a" {
		t.Fatalf("order is %s", got)
	}
	first := before.Pods[0]
	if first.Pod.Annotations[topic.SourceAnnotation] != "api" ||
		first.Pod.Annotations[annotationSeen] != "2026-01-02T12:00:00Z" || !first.FirstSeen.Equal(noon) {
		t.Errorf("annotations are %v, first seen %s", first.Pod.Annotations, first.FirstSeen)
	}
	if b.Annotations != nil {
		t.Error("the source's own pod was changed")
	}
	changed := b.DeepCopy()
	changed.Labels = map[string]string{"x": "y"}
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{a, changed}}, noon.Add(time.Hour))
	after := m.Desired()
	if after.Pods[0].Pod == first.Pod || after.Pods[0].Pod.Labels["x"] != "y" || !after.Pods[0].FirstSeen.Equal(noon) {
		t.Errorf("the changed pod is %+v", after.Pods[0])
	}
	if after.Pods[1].Pod != before.Pods[1].Pod || after.Pods[2].Pod != before.Pods[2].Pod {
		t.Error("pods that did not change have new pointers")
	}
	m.Set(Set{Source: topic.SourceAPI}, noon)
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{b}}, noon.Add(2*time.Hour))
	if got := m.Desired().Pods[1]; names(m.Desired()) != "file:c api:b" || !got.FirstSeen.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("a pod that went and came is %+v", got)
	}
}

func TestMergeKnowsAListedVersionAgain(t *testing.T) {
	m := NewMerge(topic.SourceAPI)
	a := pod("a", "1")
	a.ResourceVersion = "7"
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{a}}, noon)
	before := m.Desired().Pods[0].Pod
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{a.DeepCopy()}}, noon)
	if m.Desired().Pods[0].Pod != before {
		t.Error("a new list of the same version gave a new pod")
	}
}

func TestMergeSeparatesMirrorPods(t *testing.T) {
	m := NewMerge(topic.SourceAPI)
	mirror := pod("etcd-node", "9")
	mirror.Annotations = map[string]string{annotationMirror: "abc"}
	mirror.DeletionTimestamp = &metav1.Time{Time: noon}
	mirror.ResourceVersion, mirror.Status.Phase = "7", corev1.PodRunning
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{mirror, pod("a", "1")}}, noon)
	d := m.Desired()
	if names(d) != "api:a" || len(d.Mirrors) != 1 {
		t.Fatalf("desired %s, mirrors %v", names(d), d.Mirrors)
	}
	want := topic.MirrorPod{
		Ref: topic.Ref{Namespace: "default", Name: "etcd-node", UID: "9"}, Hash: "abc", Deleting: true,
		ResourceVersion: "7", Status: mirror.Status,
	}
	if !reflect.DeepEqual(d.Mirrors[0], want) {
		t.Errorf("mirror is %+v", d.Mirrors[0])
	}
}

func TestMergeConflicts(t *testing.T) {
	m := NewMerge(topic.SourceAPI, topic.SourceFile, topic.SourceHTTP)
	m.Set(Set{Source: topic.SourceAPI, Pods: []*corev1.Pod{pod("etcd", "api-uid"), pod("x", "taken")}}, noon)
	m.Set(Set{Source: topic.SourceHTTP, Pods: []*corev1.Pod{pod("etcd", "http-uid")}}, noon)
	m.Set(Set{Source: topic.SourceFile, Pods: []*corev1.Pod{pod("etcd", "file-uid"), pod("y", "taken")}}, noon)
	d := m.Desired()
	if got := names(d); got != "api:etcd api:x file:etcd" {
		t.Errorf("desired %s", got)
	}
	if len(d.Conflicts) != 3 {
		t.Errorf("conflicts: %v", d.Conflicts)
	}
}
