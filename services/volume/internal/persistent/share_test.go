package persistent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

// fakeMount replaces mount by a program that notes its arguments and mounts a tmpfs instead.
func fakeMount(t *testing.T) (calls func() string) {
	t.Helper()
	bin := t.TempDir()
	log := filepath.Join(bin, "calls")
	must(t, os.WriteFile(filepath.Join(bin, "mount"), []byte(fmt.Sprintf(
		"#!/bin/sh\necho \"$@\" >>%s\nfor dir; do :; done\nexec /bin/mount -t tmpfs tmpfs \"$dir\"\n", log)), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return func() string {
		data, _ := os.ReadFile(log)
		return strings.TrimSpace(string(data))
	}
}

// A claim's directory of an NFS server is mounted with the volume's options, and found again by another process.
func TestShareOfAServer(t *testing.T) {
	calls := fakeMount(t)
	b := newBed(t, corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/data"}})
	b.volume.Spec.MountOptions = []string{"nfsvers=4.2", "hard"}
	r := b.request("u1")
	r.Volume.PersistentVolumeClaim.ReadOnly = true
	result := b.mount(r)
	dir := filepath.Join(b.root, "pods/u1/volumes/kubernetes.io~nfs/pv")
	want := plugin.Result{HostPath: dir, PersistentVolume: "pv", Plugin: "kubernetes.io/nfs", ReadOnly: true}
	if result != want {
		t.Errorf("the volume is %+v, want %+v", result, want)
	}
	if got := calls(); got != "-t nfs -o ro,hard,nfsvers=4.2 nas:/data "+dir {
		t.Errorf("mount %s", got)
	}
	// Without the API server: what is mounted is known.
	b.kinds, b.claim, r.Known = Kinds(b.root, b, nil, nil), nil, result
	r.Known.Plugin = ""
	if again := b.mount(r); again.HostPath != dir || !again.ReadOnly {
		t.Errorf("another process has %+v", again)
	}
	b.unmount(r, result)
	b.clean()
}
