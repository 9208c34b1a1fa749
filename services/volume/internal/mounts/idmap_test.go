package mounts

import "testing"

func TestKernelsThatMapIDs(t *testing.T) {
	for release, want := range map[string][2]bool{
		"6.1.0-18-cloud-amd64": {false, false}, "5.14.0-570.el9.x86_64": {false, false}, "6.3": {true, false},
		"6.8.0-40-generic": {true, false}, "6.9-rc1": {true, true}, "6.12.5+deb13": {true, true}, "7.0.1": {true, true},
		"": {true, true}, "unknown": {true, true},
	} {
		if got := [2]bool{MapsTmpfs(release), MapsHugetlbfs(release)}; got != want {
			t.Errorf("%q: tmpfs and hugetlbfs %v, want %v", release, got, want)
		}
	}
	if Kernel() == "" {
		t.Error("the running kernel has no release")
	}
}
