package executor

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/userns"
)

// Two pods with IDs in common could read each other's files.
func TestRangesDontOverlapAfterTheirLengthHasChanged(t *testing.T) {
	for name, c := range map[string]struct{ before, after uint32 }{
		"longer":  {65536, 4 * 65536},
		"shorter": {4 * 65536, 65536},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var all []userns.Range
			give := func(u *UserNamespaces, uids ...string) {
				t.Helper()
				for _, uid := range uids {
					all = append(all, rangeOf(t, u, uid))
				}
			}
			old, err := NewUserNamespaces(dir, c.before, 20)
			if err != nil {
				t.Fatal(err)
			}
			give(old, "a", "b", "c", "d", "e")
			u, err := NewUserNamespaces(dir, c.after, 20)
			if err != nil {
				t.Fatal(err)
			}
			// What several pods share is free when the last of them has gone.
			if err := u.Release("d"); err != nil {
				t.Fatal(err)
			}
			all = append(all[:3], all[4:]...)
			give(u, "f", "g", "h", "i", "j", "k")
			for i, one := range all {
				for _, other := range all[i+1:] {
					if one.First < other.First+other.Length && other.First < one.First+one.Length {
						t.Errorf("%+v and %+v overlap", one, other)
					}
				}
			}
		})
	}
}

func rangeOf(t *testing.T, u *UserNamespaces, uid string) userns.Range {
	t.Helper()
	no := false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{HostUsers: &no}}
	ns, err := u.For(pod)
	if err != nil {
		t.Fatal(err)
	}
	return userns.Range{First: ns.GetUids()[0].GetHostId(), Length: ns.GetUids()[0].GetLength()}
}
