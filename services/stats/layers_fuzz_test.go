package stats

import (
	"path"
	"strings"
	"testing"
)

// What is counted as a writable layer is a directory that the kernel has named, whatever names containers choose.
func FuzzUpperDirs(f *testing.F) {
	const line = "100 1 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/0af9/rootfs rw shared:5 - overlay " +
		"overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n"
	f.Add(line)
	f.Add(strings.ReplaceAll(line, "/u,", `/a\040b,`))
	f.Add(strings.ReplaceAll(line, "upperdir=/u", "upperdir=u") + strings.ReplaceAll(line, "shared:5 ", ""))
	f.Add("100 1 0:50 / /rootfs rw - overlay overlay rw,upperdir=/u\n")
	f.Add("100 1 0:50 / /x/rootfs rw - overlay\n")
	f.Fuzz(func(t *testing.T, text string) {
		dirs, err := upperDirs(strings.NewReader(text))
		if err != nil && dirs != nil {
			t.Errorf("%v with the error %v", dirs, err)
		}
		for id, dir := range dirs {
			if id == "" || id != path.Base(id) || !path.IsAbs(dir) || !strings.Contains(text, "upperdir="+dir) {
				t.Errorf("%q is at %q", id, dir)
			}
		}
	})
}
