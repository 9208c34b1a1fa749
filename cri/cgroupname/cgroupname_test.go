package cgroupname

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestContainerIDs(t *testing.T) {
	id := strings.Repeat("0af9", 16)
	for name, want := range map[string]string{
		"/kubepods/burstable/pod12-34/" + id:                                  id,
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope": id,
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
