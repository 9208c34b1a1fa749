package labels

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The first vector is the one in the test of Kubernetes 1.36.3; the others were computed with the library that its
// HashContainer uses (k8s.io/utils/dump).
func TestContainerHashIsTheKubelets(t *testing.T) {
	for _, v := range []struct{ name, image, want string }{
		{"test_container", "foo/image:v1", "8e45cbd0"},
		{"app", "docker.io/library/busybox:1.36", "13385bb0"},
		{"a<b>&\u2028é", "x@sha256:00", "e0afc22d"},
		{"", "", "edd67cc4"},
		{"c4", "registry.k8s.io/pause:3.10", "856463c6"},
	} {
		got := ContainerHash(&corev1.Container{Name: v.name, Image: v.image, Command: []string{"not", "part", "of", "it"}})
		if got != v.want {
			t.Errorf("hash of %q, %q = %s, want %s", v.name, v.image, got, v.want)
		}
	}
}

func TestAnnotationsRoundTrip(t *testing.T) {
	grace, deletion := int64(30), int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u-1", Labels: map[string]string{"app": "web"},
			DeletionGracePeriodSeconds: &deletion,
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
	container := &corev1.Container{
		Name: "app", Image: "nginx", TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Ports:                    []corev1.ContainerPort{{ContainerPort: 80}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Sleep: &corev1.SleepAction{Seconds: 3},
		}},
	}
	annotations := ContainerAnnotations(pod, container, 2, map[string]string{"device": "gpu0", RestartCount: "99"})
	if annotations["device"] != "gpu0" {
		t.Error("extra annotations are lost")
	}
	got, err := Parse(annotations)
	if err != nil {
		t.Fatal(err)
	}
	want := ContainerInfo{
		Hash: ContainerHash(container), RestartCount: 2,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "FallbackToLogsOnError",
		DeletionGracePeriod: &deletion, TerminationGracePeriod: &grace,
		PreStop: container.Lifecycle.PreStop, Ports: container.Ports,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
	for _, all := range []map[string]string{Sandbox(pod), Container(pod, "app")} {
		if ref := Pod(all); ref.Name != "web" || ref.Namespace != "shop" || ref.UID != "u-1" {
			t.Errorf("labels %v name the pod %+v", all, ref)
		}
	}
	if Sandbox(pod)["app"] != "web" || Container(pod, "app")["app"] != "" {
		t.Error("the pod's own labels belong on the sandbox only")
	}
}

func TestParseToleratesWhatIsMalformed(t *testing.T) {
	info, err := Parse(map[string]string{
		Hash: "xyz", RestartCount: "-3", PodDeletionGracePeriod: "1e9", PodTerminationGracePeriod: "7",
		PreStopHandler: "{", Ports: `[{"containerPort":"x"}]`, TerminationMessagePath: "/x",
	})
	if info.TerminationGracePeriod == nil || *info.TerminationGracePeriod != 7 || info.TerminationMessagePath != "/x" {
		t.Errorf("what is valid got lost: %+v", info)
	}
	if info.Hash != "" || info.RestartCount != 0 || info.DeletionGracePeriod != nil || info.PreStop != nil ||
		info.Ports != nil {
		t.Errorf("what is malformed left something: %+v", info)
	}
	for _, name := range []string{Hash, RestartCount, PodDeletionGracePeriod, PreStopHandler, Ports} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error doesn't name %s: %v", name, err)
		}
	}
	if info, err := Parse(nil); err != nil || !reflect.DeepEqual(info, ContainerInfo{}) {
		t.Errorf("no annotations gave %+v, %v", info, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("8e45cbd0", "3", `{"sleep":{"seconds":1}}`, "[]")
	f.Fuzz(func(t *testing.T, hash, count, preStop, ports string) {
		info, err := Parse(map[string]string{Hash: hash, RestartCount: count, PreStopHandler: preStop, Ports: ports})
		if info.RestartCount < 0 {
			t.Errorf("restart count %d from %q", info.RestartCount, count)
		}
		if info.Hash == "" && err == nil {
			t.Errorf("hash %q was ignored in silence", hash)
		}
	})
}
