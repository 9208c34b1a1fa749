package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mapped are both mappings of a pod with a user namespace of its own; nil if it gets none.
func mapped(u *UserNamespaces, uid types.UID) []*runtimeapi.IDMapping {
	no := false
	ns, err := u.For(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{HostUsers: &no}})
	if err != nil {
		return nil
	}
	return append(ns.GetUids(), ns.GetGids()...)
}

// FuzzUserNamespaceFile has a pod's file say what it likes: no ID of the host's, nor of another pod, is the pod's.
func FuzzUserNamespaceFile(f *testing.F) {
	const mapping = `{"uidMappings":[{"hostId":%d,"containerId":%d,"length":%d}],"gidMappings":[{"hostId":%d,"containerId":0,"length":%d}]}`
	for _, numbers := range [][]any{
		{65536, 0, 65536, 65536, 65536},
		{1, 0, 65536, 65536, 65536},
		{65536, 1, 65536, 65536, 65536},
		{65536, 0, 0, 65536, 65536},
		{65536, 0, 65536, 131072, 65536},
		{65536, 0, 131072, 65536, 131072},
		{4294967295, 0, 65536, 4294967295, 65536},
		{100000, 0, 65536, 100000, 65536},
	} {
		f.Add(fmt.Appendf(nil, mapping, numbers...))
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`not JSON`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "pods", "a"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pods", "a", "userns"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		u, err := NewUserNamespaces(dir, 65536, 4)
		if err != nil {
			t.Fatal(err)
		}
		of := map[types.UID][]*runtimeapi.IDMapping{"a": mapped(u, "a"), "b": mapped(u, "b")}
		for uid, list := range of {
			for _, m := range list {
				if m.HostId < 65536 || m.Length == 0 || uint64(m.HostId)+uint64(m.Length) > 1<<32 || m.ContainerId != 0 {
					t.Errorf("pod %s has %v", uid, m)
				}
			}
		}
		for _, a := range of["a"] {
			for _, b := range of["b"] {
				if uint64(a.HostId) < uint64(b.HostId)+uint64(b.Length) && uint64(b.HostId) < uint64(a.HostId)+uint64(a.Length) {
					t.Errorf("pods a and b share IDs: %v and %v", a, b)
				}
			}
		}
	})
}
