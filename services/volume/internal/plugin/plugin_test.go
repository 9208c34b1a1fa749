package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/volume/internal/mounts"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// store is a Source by object name.
type store[T any] map[string]*T

func (s store[T]) Get(_ context.Context, key types.NamespacedName) (*T, error) {
	if o, ok := s[key.Namespace+"/"+key.Name]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("things"), key.Name)
}

// request is a request for a volume of a pod in namespace "shop".
func request(t *testing.T, kinds List, source corev1.VolumeSource) (Kind, Request) {
	t.Helper()
	v := &corev1.Volume{Name: "vol", VolumeSource: source}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"}}
	kind := kinds.For(v)
	dir := kind.VolumeDir(t.TempDir(), "vol")
	if dir != "" {
		t.Cleanup(func() { _ = mounts.Release(context.Background(), dir) })
	}
	return kind, Request{Pod: pod, Volume: v, Dir: dir}
}

func mount(t *testing.T, kind Kind, r Request) Result {
	t.Helper()
	result, err := kind.Plugin.Mount(context.Background(), r)
	must(t, err)
	return result
}

func isMount(t *testing.T, dir string) bool {
	t.Helper()
	mounted, err := mounts.Mounted(dir)
	must(t, err)
	return mounted
}

func TestDirectoriesAreTheKubelets(t *testing.T) {
	for want, source := range map[string]corev1.VolumeSource{
		"kubernetes.io~empty-dir":    {},
		"kubernetes.io~configmap":    {ConfigMap: &corev1.ConfigMapVolumeSource{}},
		"kubernetes.io~secret":       {Secret: &corev1.SecretVolumeSource{}},
		"kubernetes.io~downward-api": {DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
		"kubernetes.io~projected":    {Projected: &corev1.ProjectedVolumeSource{}},
		"":                           {HostPath: &corev1.HostPathVolumeSource{}},
	} {
		kind := All(Objects{}).For(&corev1.Volume{VolumeSource: source})
		if kind.Dir != want {
			t.Errorf("got %q, want %q", kind.Dir, want)
		}
		if _, ok := All(Objects{}).ByDir(want, false); ok != (want != "") {
			t.Errorf("ByDir(%q) is %v", want, ok)
		}
	}
}

func TestEmptyDir(t *testing.T) {
	kind, r := request(t, All(Objects{}), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	if result := mount(t, kind, r); result.HostPath != r.Dir || result.ReadOnly {
		t.Errorf("result %+v", result)
	}
	info, err := os.Stat(r.Dir)
	must(t, err)
	if info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("mode %v", info.Mode())
	}
	must(t, os.WriteFile(filepath.Join(r.Dir, "file"), nil, 0o600))
	must(t, os.Chmod(r.Dir, 0o700))
	mount(t, kind, r)
	if info, err := os.Stat(r.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a second mount changed the mode to %v (%v)", info.Mode(), err)
	}
	must(t, kind.Plugin.Unmount(context.Background(), r.Dir))
	if _, err := os.Stat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after unmount: %v", err)
	}
	must(t, kind.Plugin.Unmount(context.Background(), r.Dir))
}

func TestEmptyDirInMemory(t *testing.T) {
	kind, r := request(t, All(Objects{}), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("3Mi")),
	}})
	r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(4711))}
	mount(t, kind, r)
	mount(t, kind, r)
	var stat syscall.Statfs_t
	must(t, syscall.Statfs(r.Dir, &stat))
	info, err := os.Stat(r.Dir)
	must(t, err)
	if size := int64(stat.Blocks) * stat.Bsize; size != 3<<20 || info.Mode().Perm() != 0o777 ||
		info.Mode()&fs.ModeSetgid == 0 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("size %d, mode %v, group %d", size, info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
	}
	must(t, kind.Plugin.Unmount(context.Background(), r.Dir))
	if _, err := os.Stat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after unmount: %v", err)
	}
}

// A volume in memory that can't be mounted isn't its directory on the disk instead. No kernel has pages of that size.
func TestEmptyDirThatCannotBeMounted(t *testing.T) {
	kind, r := request(t, All(Objects{}), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumHugePagesPrefix + "3Mi",
	}})
	r.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"hugepages-3Mi": resource.MustParse("3Mi")},
	}}}
	if result, err := kind.Plugin.Mount(context.Background(), r); err == nil || result != (Result{}) {
		t.Errorf("result %+v, %v", result, err)
	}
}

func TestMemorySize(t *testing.T) {
	container := func(limit string) corev1.Container {
		c := corev1.Container{}
		if limit != "" {
			c.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse(limit)}
		}
		return c
	}
	pod := func(limits ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for _, l := range limits {
			p.Spec.Containers = append(p.Spec.Containers, container(l))
		}
		return p
	}
	podLevel := pod("", "")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("5")}}
	node := corev1.ResourceList{"memory": resource.MustParse("100")}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		limit *resource.Quantity
		node  corev1.ResourceList
		want  int64
	}{
		{"nothing known", pod(""), nil, nil, 0},
		{"the node", pod(""), nil, node, 100},
		{"the pod", pod("30", "40"), nil, node, 70},
		{"one container without a limit", pod("30", ""), nil, node, 100},
		{"the volume", pod("30", "40"), ptr(resource.MustParse("10")), node, 10},
		{"the volume asks for more", pod("30"), ptr(resource.MustParse("1Gi")), node, 30},
		{"a limit of zero is none", pod("30"), ptr(resource.MustParse("0")), node, 30},
		{"the pod's own limit", podLevel, nil, node, 5},
	} {
		if got := memorySize(c.pod, c.limit, c.node); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPageSize(t *testing.T) {
	pod := func(names ...string) *corev1.Pod {
		list := corev1.ResourceList{}
		for _, n := range names {
			list[corev1.ResourceName(n)] = resource.MustParse("1Gi")
		}
		return &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}},
		}
	}
	for _, c := range []struct {
		medium string
		pod    *corev1.Pod
		want   string
	}{
		{"HugePages", pod("hugepages-2Mi"), "2097152 <nil>"},
		{"HugePages", pod(), "0 medium HugePages: no container requests huge pages"},
		{"HugePages", pod("hugepages-2Mi", "hugepages-1Gi"), "0 medium HugePages: containers request huge pages of several " +
			"sizes; name one, such as HugePages-2Mi"},
		{"HugePages-1Gi", pod("hugepages-2Mi", "hugepages-1Gi"), "1073741824 <nil>"},
		{"HugePages-1Gi", pod("hugepages-2Mi"), "0 medium HugePages-1Gi: no container requests huge pages of this size"},
		{"HugePages-lots", pod("hugepages-2Mi"), "0 medium HugePages-lots: "},
	} {
		size, err := pageSize(c.pod, corev1.StorageMedium(c.medium))
		if got := fmt.Sprint(size, " ", err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.medium, got, c.want)
		}
	}
}

// The API allows a path without the slash at its beginning.
func TestRelativeHostPath(t *testing.T) {
	kind := corev1.HostPathDirectory
	k, r := request(t, All(Objects{}),
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "proc/sys", Type: &kind}})
	if result := mount(t, k, r); result.HostPath != "/proc/sys" {
		t.Errorf("it is %q on the host", result.HostPath)
	}
}

func TestHostPath(t *testing.T) {
	top := t.TempDir()
	must(t, os.Mkdir(filepath.Join(top, "dir"), 0o755))
	must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o644))
	must(t, os.Symlink("dir", filepath.Join(top, "link")))
	listener, err := net.Listen("unix", filepath.Join(top, "socket"))
	must(t, err)
	defer func() { _ = listener.Close() }()
	must(t, syscall.Mknod(filepath.Join(top, "block"), syscall.S_IFBLK|0o600, 7<<8))
	for _, c := range []struct {
		name string
		kind corev1.HostPathType
		want string
	}{
		{"none", "", ""},
		{"dir", "Directory", ""},
		{"link", "Directory", ""},
		{"file", "File", ""},
		{"socket", "Socket", ""},
		{"block", "BlockDevice", ""},
		{"/dev/null", "CharDevice", ""},
		{"made/deep", "DirectoryOrCreate", ""},
		{"dir", "DirectoryOrCreate", ""},
		{"newfile", "FileOrCreate", ""},
		{"file", "FileOrCreate", ""},
		{"none", "Directory", "is not a directory"},
		{"file", "Directory", "is not a directory"},
		{"file", "DirectoryOrCreate", "is not a directory"},
		{"dir", "File", "is not a file"},
		{"dir", "FileOrCreate", "is not a file"},
		{"file", "Socket", "is not a socket file"},
		{"block", "CharDevice", "is not a character device"},
		{"/dev/null", "BlockDevice", "is not a block device"},
		{"no/parent", "FileOrCreate", "create the file"},
		{"dir", "Banana", "Banana is an invalid volume type"},
		{"../dir", "", "must not contain '..'"},
	} {
		name := c.name
		if !filepath.IsAbs(name) {
			name = top + "/" + name
		}
		kind, r := request(t, All(Objects{}),
			corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: name, Type: &c.kind}})
		result, err := kind.Plugin.Mount(context.Background(), r)
		switch {
		case c.want == "" && (err != nil || result.HostPath != name):
			t.Errorf("%s as %q: %v, %+v", c.name, c.kind, err, result)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s as %q: %v, want %q", c.name, c.kind, err, c.want)
		}
	}
	if info, err := os.Stat(filepath.Join(top, "made", "deep")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the made directory: %v, %v", info, err)
	}
}

func TestImageAndUnsupported(t *testing.T) {
	kind, r := request(t, All(Objects{}),
		corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.com/a:1"}})
	if result := mount(t, kind, r); result.Image != "example.com/a:1" || !result.ReadOnly || result.HostPath != "" {
		t.Errorf("image: %+v", result)
	}
	for want, source := range map[string]corev1.VolumeSource{
		`csi driver "x.io"`: {CSI: &corev1.CSIVolumeSource{Driver: "x.io"}},
		"nfs: ":             {NFS: &corev1.NFSVolumeSource{}},
	} {
		kind, r := request(t, All(Objects{}), source)
		_, err := kind.Plugin.Mount(context.Background(), r)
		if !errors.Is(err, ErrUnsupported) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestConfigMapVolume(t *testing.T) {
	configMaps := store[corev1.ConfigMap]{"shop/cm": {Data: map[string]string{"key": "1"}}}
	kinds := All(Objects{ConfigMaps: configMaps})
	kind,
		r := request(t, kinds,
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{
			Name: "cm",
		}}})
	r.Pod.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{
		{Name: "vol", MountPath: "/c"},
		{Name: "other", MountPath: "/c/inner/most"},
	}}}
	result := mount(t, kind, r)
	if !result.ReadOnly || !result.SELinuxRelabel || isMount(t, r.Dir) {
		t.Errorf("result %+v, on tmpfs %v", result, isMount(t, r.Dir))
	}
	if info, err := os.Stat(filepath.Join(r.Dir, "inner", "most")); err != nil || !info.IsDir() {
		t.Errorf("the nested mount point: %v", err)
	}
	configMaps["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"key": "2"}}
	mount(t, kind, r)
	if data, err := os.ReadFile(filepath.Join(r.Dir, "key")); string(data) != "2" {
		t.Errorf("after the change: %q, %v", data, err)
	}
	configMaps["shop/cm"] = &corev1.ConfigMap{Data: map[string]string{"../../escape": "x"}}
	if _, err := kind.Plugin.Mount(context.Background(), r); err == nil {
		t.Error("a key that leads out of the volume was written")
	}
	delete(configMaps, "shop/cm")
	if _, err := kind.Plugin.Mount(context.Background(), r); err == nil || err.Error() != `configmap "cm" not found` {
		t.Errorf("missing: %v", err)
	}
	r.Volume.ConfigMap.Optional = ptr(true)
	mount(t, kind, r)
	if _, err := os.Stat(filepath.Join(r.Dir, "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an optional ConfigMap that is gone left its file: %v", err)
	}
}

func TestSecretVolumeIsInMemory(t *testing.T) {
	kinds := All(Objects{Secrets: store[corev1.Secret]{"shop/s": {Data: map[string][]byte{"key": []byte("v")}}}})
	kind, r := request(t, kinds, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName:  "s",
		DefaultMode: ptr(int32(0o400)),
	}})
	r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(4711))}
	mount(t, kind, r)
	if !isMount(t, r.Dir) {
		t.Error("a secret is on a disk")
	}
	info, err := os.Stat(filepath.Join(r.Dir, "key"))
	must(t, err)
	if info.Mode().Perm() != 0o440 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
		t.Errorf("mode %v, group %d", info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
	}
	must(t, kind.Plugin.Unmount(context.Background(), r.Dir))
	if _, err := os.Stat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after unmount: %v", err)
	}
}

func TestReservedMountPointInsideAFileVolume(t *testing.T) {
	kind, r := request(t, All(Objects{}), corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}})
	r.Pod.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{
		{Name: "vol", MountPath: "/c"},
		{Name: "other", MountPath: "/c/..data/x"},
	}}}
	if _, err := kind.Plugin.Mount(context.Background(), r); err == nil {
		t.Error("a mount point below ..data was made")
	}
}
