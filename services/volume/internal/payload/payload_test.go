package payload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/kube/resourceref"
	"kubelot.dev/services/volume/internal/atomicwriter"
)

func ptr[T any](v T) *T { return &v }

func show(p atomicwriter.Payload, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var list []string
	for name, f := range p {
		list = append(list, fmt.Sprintf("%s=%s(%o)", name, f.Data, f.Mode))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestConfigMap(t *testing.T) {
	cm := &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"c": []byte("3")}}
	items := []corev1.KeyToPath{{Key: "a", Path: "x/a", Mode: ptr(int32(0o400))}, {Key: "c", Path: "c"}}
	missing := []corev1.KeyToPath{{Key: "no", Path: "no"}, {Key: "a", Path: "a"}}
	check(t, "all keys", show(ConfigMap(nil, cm, nil, false)), "a=1(644) b=2(644) c=3(644)")
	check(t, "items", show(ConfigMap(items, cm, ptr(int32(0o600)), false)), "c=3(600) x/a=1(400)")
	check(t, "missing key", show(ConfigMap(missing, cm, nil, false)),
		"error: configmap references non-existent config key: no")
	check(t, "optional key", show(ConfigMap(missing, cm, nil, true)), "a=1(644)")
	check(t, "optional object", show(ConfigMap(items, nil, nil, true)), "")
	check(t, "setuid bits", show(ConfigMap(items[1:], cm, ptr(int32(0o4755)), true)), "c=3(755)")
}

func TestSecret(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	check(t, "all keys", show(Secret(nil, s, ptr(int32(0o400)), false)), "k=v(400)")
	check(t, "missing key", show(Secret([]corev1.KeyToPath{{Key: "no"}}, s, nil, false)),
		"error: references non-existent secret key: no")
	check(t, "optional object", show(Secret(nil, nil, nil, true)), "")
}

var downwardPod = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "u-1",
		Labels: map[string]string{"b": "2", "app": `we"b`}, Annotations: map[string]string{"example.com/Note": "line\nline"},
	},
	Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "hugepages-2Mi": resource.MustParse("4Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("65Mi")},
		}}},
	},
}

func TestDownwardFields(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u-1",
		"metadata.labels":                          "app=\"we\\\"b\"\nb=\"2\"",
		"metadata.annotations":                     `example.com/Note="line\nline"`,
		"metadata.labels['app']":                   `we"b`,
		"metadata.labels['none']":                  "",
		"metadata.annotations['example.com/Note']": "line\nline",
		"metadata.labels['no good']":               "error: invalid key subscript in metadata.labels['no good']: ",
		"metadata.name['x']":                       `error: fieldPath "metadata.name['x']" does not support subscript`,
		"status.podIP":                             "error: unsupported fieldPath: status.podIP",
		"":                                         "error: unsupported fieldPath: ",
	} {
		items := []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
		got := show(Downward(items, downwardPod, nil, ptr(int32(0o440))))
		if strings.HasPrefix(want, "error: ") {
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %s, want %s", path, got, want)
			}
			continue
		}
		check(t, path, got, "f="+want+"(440)")
	}
}

func TestDownwardResources(t *testing.T) {
	node := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"app", "requests.cpu", "", "1"},
		{"app", "requests.cpu", "1m", "250"},
		{"app", "limits.memory", "1Mi", "65"},
		{"app", "limits.memory", "1Gi", "1"},
		{"app", "limits.cpu", "", "4"},
		{"init", "limits.memory", "1Gi", "8"},
		{"init", "requests.memory", "", "0"},
		{"app", "requests.hugepages-2Mi", "1Mi", "4"},
		{"app", "limits.hugepages-2Mi", "1Mi", "0"},
		{"app", "limits.ephemeral-storage", "", "0"},
		{"app", "limits.bananas", "", "error: unsupported container resource : limits.bananas"},
		{"app", "cpu", "", "error: unsupported container resource : cpu"},
		{"none", "limits.cpu", "", "error: container none not found"},
	} {
		ref := &corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		got := show(Downward([]corev1.DownwardAPIVolumeFile{{Path: "f", ResourceFieldRef: ref}}, downwardPod, node, nil))
		want := c.want
		if !strings.HasPrefix(want, "error") {
			want = "f=" + want + "(644)"
		}
		check(t, c.container+" "+c.resource+" "+c.divisor, got, want)
	}
	_,
		err := Downward([]corev1.DownwardAPIVolumeFile{{
		Path:             "f",
		ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "init", Resource: "limits.cpu"},
	}},
		downwardPod, nil, nil)
	limited := downwardPod.DeepCopy()
	limited.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("2")}}
	ref := &corev1.ResourceFieldSelector{ContainerName: "app", Resource: "limits.cpu"}
	check(t, "limited as a whole", show(Downward([]corev1.DownwardAPIVolumeFile{{Path: "f", ResourceFieldRef: ref}},
		limited, node, nil)), "f=2(644)")
	if !errors.Is(err, resourceref.ErrNoAllocatable) {
		t.Errorf("without the node's allocatable: %v", err)
	}
}

func TestTokenModeAndUser(t *testing.T) {
	user := func(uids ...int64) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}}}
		for _, uid := range uids {
			c := corev1.Container{}
			if uid >= 0 {
				c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(uid)}
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	same, different, unset := user(7, 7), user(7, 8), user(7, -1)
	byPod, grouped := user(-1, 7), user(-1)
	byPod.Spec.SecurityContext.RunAsUser = ptr(int64(7))
	grouped.Spec.SecurityContext.FSGroup = ptr(int64(9))
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		uid  int64
		mode uint32
	}{
		"the same user": {same, 7, 0o600}, "different users": {different, -1, 0o644}, "one unset": {unset, -1, 0o644},
		"the pod's user": {byPod, 7, 0o600}, "fsGroup": {grouped, -1, 0o600}, "no context": {&corev1.Pod{}, -1, 0o644},
	} {
		uid := int64(-1)
		if u := RunAsUser(c.pod); u != nil {
			uid = *u
		}
		if mode := uint32(TokenMode(c.pod, nil)); uid != c.uid || mode != c.mode {
			t.Errorf("%s: user %d, mode %o; want %d, %o", name, uid, mode, c.uid, c.mode)
		}
	}
}

func TestNested(t *testing.T) {
	mounts := func(pairs ...string) corev1.Container {
		c := corev1.Container{}
		for i := 0; i < len(pairs); i += 2 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: pairs[i], MountPath: pairs[i+1]})
		}
		return c
	}
	sub := mounts("v", "/dir", "w", "/dir/below-a-subpath")
	sub.VolumeMounts[0].SubPath = "x"
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{mounts("v", "/init/", "w", "/init/one")},
		Containers: []corev1.Container{
			mounts("v", "/dir", "w", "/dir/nested", "x", "/dir/nested/double", "y", "/dir/nested-vol", "z", "/dir2/no", "q",
				"/dir/../dir/deep/er"), sub,
		},
	}}
	check(t, "nested", strings.Join(Nested("v", pod), " "), "deep/er nested nested-vol one")
	check(t, "none", strings.Join(Nested("z", pod), " "), "")
}

func FuzzField(f *testing.F) {
	f.Add("metadata.labels['a']")
	f.Add("metadata.annotations['']")
	f.Add("['']")
	f.Fuzz(func(_ *testing.T, path string) { _, _ = field(downwardPod, path) })
}
