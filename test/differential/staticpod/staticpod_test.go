package staticpod

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	core "k8s.io/kubernetes/pkg/apis/core"
	corefuzzer "k8s.io/kubernetes/pkg/apis/core/fuzzer"
	corev1internal "k8s.io/kubernetes/pkg/apis/core/v1"

	"kubelot.dev/services/podsync/podsynctest"
)

var byValue = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

func TestManifestsAsUpstream(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			want, wantErr := upstream(data)
			got, _, gotErr := podsynctest.Pod(data, podsynctest.Origin{File: file, NodeName: node})
			if (wantErr == nil) != (gotErr == nil) {
				t.Fatalf("kubelet: %v\nkubelot: %v", wantErr, gotErr)
			}
			if wantErr != nil {
				return
			}
			compare(t, want, got)
		})
	}
}

// TestRandomPodsAsUpstream: whatever the pod, kubelot computes the kubelet's UID and defaults for it.
func TestRandomPodsAsUpstream(t *testing.T) {
	const seed, rounds = 1, 3000
	random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, corefuzzer.Funcs),
		rand.NewSource(seed), legacyscheme.Codecs)
	for i := range rounds {
		internal := new(core.Pod)
		random.Fill(internal)
		internal.UID, internal.Name = "", "random"
		withoutTokens(internal)
		pod := new(corev1.Pod)
		if err := corev1internal.Convert_core_Pod_To_v1_Pod(internal, pod, nil); err != nil {
			continue
		}
		pod.APIVersion, pod.Kind = "v1", "Pod"
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := upstream(data)
		if want == nil {
			continue
		}
		got, err := podsynctest.UnvalidatedPod(data, podsynctest.Origin{File: file, NodeName: node})
		if err != nil {
			t.Fatalf("pod %d: %v\n%s", i, err, data)
		}
		if compare(t, want, got); t.Failed() {
			t.Fatalf("pod %d: %s", i, data)
		}
	}
}

// withoutTokens removes the one type whose dump differs: a static pod with a token is refused anyway.
func withoutTokens(pod *core.Pod) {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for i := range v.Projected.Sources {
			v.Projected.Sources[i].ServiceAccountToken = nil
		}
	}
}

func compare(t *testing.T, want, got *corev1.Pod) {
	t.Helper()
	// kubelot sets the priority that the priority class implies; the kubelet leaves it to the mirror pod.
	if want.Spec.Priority == nil {
		got.Spec.Priority = nil
	}
	got.TypeMeta = want.TypeMeta
	if want.UID != got.UID {
		t.Errorf("UID is %s, the kubelet's is %s", got.UID, want.UID)
	}
	delete(want.Annotations, podsynctest.AnnotationHash)
	delete(got.Annotations, podsynctest.AnnotationHash)
	want.UID, got.UID = "", ""
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("the kubelet's pod (-) differs (+):\n%s", diff)
	}
}
