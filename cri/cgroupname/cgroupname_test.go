package cgroupname

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

func TestContainerIDs(t *testing.T) {
	id := strings.Repeat("0af9", 16)
	for name, want := range map[string]string{
		"/kubepods/burstable/pod12-34/" + id:                                  id,
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope": id,
		"/kubepods/pod12-34/crio-" + id:                                       id,
		"crio-" + id + ".scope":                                               id,
		"crio-conmon-" + id + ".scope":                                        id,
		"crio-" + id[1:] + ".scope":                                           "",
		id + "0":                                                              "",
		strings.ToUpper(id):                                                   "",
		"":                                                                    "",
		"/":                                                                   "",
		"kubepods-burstable-pod12.slice":                                      "",
	} {
		if have, ok := ContainerID(name); have != want || ok != (want != "") {
			t.Errorf("%s gave %q, %v; want %q", name, have, ok, want)
		}
	}
}

// A name that is read back is the one that was made.
func FuzzPodUID(f *testing.F) {
	f.Add("12-34")
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, uid string) {
		part, err := PodPart(uid)
		if err != nil {
			return
		}
		for _, class := range Classes(nil) {
			if have, ok := PodUID(class, DriverCgroupfs, part); !ok || have != uid {
				t.Fatalf("%q became %q", uid, have)
			}
		}
	})
}

func TestParseSlice(t *testing.T) {
	for slice, want := range map[string]string{
		"/system.slice": "/system", "kube-daemons.slice": "/kube/daemons", "/a.slice/a-b_c.slice": "/a/b-c",
		"kubelet": "/kubelet", "-.slice": "/",
	} {
		if n, err := ParseSlice(slice); err != nil || n.Cgroupfs() != want {
			t.Errorf("slice %s is %s, %v; want %s", slice, n.Cgroupfs(), err, want)
		}
	}
	for _, slice := range []string{"", "/", "a--b.slice", "-a.slice", "...slice", "a-..-b.slice"} {
		if n, err := ParseSlice(slice); err == nil {
			t.Errorf("%q was taken for the slice %q", slice, n)
		}
	}
}

// A slice's name that is read is written again as it was.
func FuzzParseSlice(f *testing.F) {
	f.Add("kubepods-burstable-pod12_34")
	f.Add("-")
	f.Fuzz(func(t *testing.T, name string) {
		n, err := ParseSlice(name + sliceSuffix)
		if err != nil || len(n) == 0 {
			return
		}
		if got := path.Base(n.Path(DriverSystemd)); got != path.Base(name+sliceSuffix) {
			t.Fatalf("%q became %q, and that %q", name, n, got)
		}
	})
}

func TestTheDriverThatMadeThemCounts(t *testing.T) {
	hierarchy := t.TempDir()
	if got := Driver(hierarchy, nil, DriverCgroupfs); got != DriverCgroupfs {
		t.Errorf("%s before there are any, want the configured one", got)
	}
	for _, step := range []struct{ dir, want string }{{"kubepods.slice", DriverSystemd}, {"kubepods", DriverCgroupfs}} {
		if err := os.Mkdir(filepath.Join(hierarchy, step.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := Driver(hierarchy, nil, DriverCgroupfs); got != step.want {
			t.Errorf("%s with %s, want %s", got, step.dir, step.want)
		}
	}
}
