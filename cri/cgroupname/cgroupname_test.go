package cgroupname

import (
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
