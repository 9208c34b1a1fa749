package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
)

// Disks that have a file system which can't be mounted.
func TestWhyFilesystems(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	damaged, strange := kit.Disk(t), kit.Disk(t)
	shell(t, "mkfs.ext4", "-q", damaged)
	// The root directory is lost, and the disk is marked as one to be checked.
	shell(t, "debugfs", "-w", "-R", "clri <2>", damaged)
	shell(t, "debugfs", "-w", "-R", "set_super_value state 2", damaged)
	shell(t, "mkfs.minix", strange)
	other := kit.Local(strange)
	kind := "minix"
	other.Local.FSType = &kind
	for name, source := range map[string]corev1.PersistentVolumeSource{"damaged": kit.Local(damaged), "strange": other} {
		ns.Volume(source, ns.For(name, corev1.PersistentVolumeFilesystem))
		ns.Apply(ns.Claim(name, "") + pod(name, onThisNode+container("volumeMounts: [{name: v, mountPath: /v}]",
			"  volumes: [{name: v, persistentVolumeClaim: {claimName: "+name+"}}]\n")))
	}
	ns.Because("damaged", "filesystem-damaged",
		"the pod can't start, because its volume v can't be mounted: its file system is damaged")
	if known, _ := os.ReadFile("/proc/filesystems"); strings.Contains(string(known), kind) ||
		exec.Command("modprobe", "--dry-run", kind).Run() == nil {
		return // few kernels have it
	}
	ns.Because("strange", "filesystem-type", "this node's kernel can't mount its file system minix")
}

// Volumes that can't be taken from a pod that is over, and a container that can't be ended.
func TestWhyLeftovers(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	disk := filepath.Join(t.TempDir(), "disk")
	kit.Loopback(t, disk, 16)
	t.Cleanup(func() { _ = exec.Command("umount", disk).Run() })
	ns.Volume(kit.Local(t.TempDir()), ns.For("local", corev1.PersistentVolumeFilesystem))
	const mounted = "volumeMounts: [{name: v, mountPath: /v}]"
	ns.Apply(ns.Claim("local", "") + pod("remains", onThisNode+container(mounted,
		"  volumes: [{name: v, persistentVolumeClaim: {claimName: local}}]\n")))
	ns.Apply(pod("busy", container(mounted, "  volumes: [{name: v, emptyDir: {medium: Memory}}]\n")))
	ns.Apply(pod("late", container(`command: [sh, -c, "while :; do echo >> /v/file; sleep 0.1; done"], `+mounted,
		"  volumes: [{name: v, hostPath: {path: "+disk+"}}]\n")))
	remains, busy, late := ns.Running("remains"), ns.Running("busy"), ns.Running("late")
	dir := func(p *corev1.Pod, kind string) string {
		return filepath.Join(bed.Node.RootDir, "pods", string(p.UID), "volumes", kind)
	}

	// Somebody unmounts the volume, and somebody else writes to where it was.
	places, err := filepath.Glob(filepath.Join(dir(remains, "kubernetes.io~local-volume"), "*"))
	if err != nil || len(places) != 1 {
		t.Fatalf("places %v, %v", places, err)
	}
	shell(t, "umount", places[0])
	left := filepath.Join(places[0], "data")
	if err := os.WriteFile(left, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.Create(filepath.Join(dir(busy, "kubernetes.io~empty-dir"), "v", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	shell(t, "fsfreeze", "--freeze", disk)
	t.Cleanup(func() { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() })
	for _, name := range []string{"remains", "busy", "late"} {
		ns.Delete(name, 1)
	}
	ns.Because("remains", "unmount-remains", "files of it are left that kubelot must not remove")
	ns.Because("busy", "unmount-busy", "something on this node still uses it")
	ns.Because("late", "stop-late", "container app still runs, although its grace period ended ")
	if err := os.Remove(left); err != nil {
		t.Fatal(err)
	}
	open.Close()
	shell(t, "fsfreeze", "--unfreeze", disk)
	for _, p := range []*corev1.Pod{remains, busy, late} {
		ns.Gone(p)
	}
}

// A node that lacks what each pod needs: the image of sandboxes, and process IDs.
func TestWhyPoorNode(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	own.NotCompact(t, "one daemon is started again")
	ns := own.Namespace(t)
	pause, err := images.Pause(own.Tools.Path("pause"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.CRI.Images().RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: pause.Ref},
	}); err != nil {
		t.Fatal(err)
	}
	ns.Apply(pod("sandbox", container("", "")))
	ns.Because("sandbox", "sandbox-image", "the pod can't start: the image of sandboxes, "+pause.Ref+", can't be had")
	if err := own.CRI.Import(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	sandbox := ns.Running("sandbox")
	if own.CRIO(t) {
		return // it isn't ready with a network configuration of no use, and needs few processes to start a container
	}
	poorNetwork(t, own, ns)

	config, err := os.ReadFile(own.Node.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	own.Reconfigure(t, string(config)+"podPidsLimit: 5\n")
	own.Signal(t, "podsync", syscall.SIGKILL)
	ns.Apply(pod("crowded", container("", "")))
	ns.Because("crowded", "container-init-ends", "as under too low a limit of processes or memory")
	ns.Delete("crowded", 0)
	ns.Delete("sandbox", 1)
	ns.Gone(sandbox)
}

// poorNetwork shows what becomes of a pod whose network lacks addresses, a plugin or its configuration. The runtime
// reads each change by itself.
func poorNetwork(t *testing.T, own *kit.Bed, ns *kit.Namespace) {
	t.Helper()
	path := own.Bed.Path("cni", "10-testbed.conflist")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(config string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	swap := func(before, after string) string {
		t.Helper()
		config := strings.Replace(string(whole), before, after, 1)
		if config == string(whole) {
			t.Fatalf("%s has no %s", path, before)
		}
		return config
	}
	write(swap(`"type": "bridge"`, `"type": "no-such-plugin"`))
	ns.Apply(pod("plugin", container("", "")))
	ns.Because("plugin", "cni-plugin-missing", `the network plugin "no-such-plugin" isn't installed on this node`)
	// The gateway's address is no pod's.
	only := fmt.Sprintf(`"gateway": %q`, own.Bed.Gateway)
	write(swap(only, only+fmt.Sprintf(`, "rangeStart": %[1]q, "rangeEnd": %[1]q`, own.Bed.Gateway)))
	ns.Apply(pod("address", container("", "")))
	ns.Because("address", "cni-addresses", "no address is left for pods on this node")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ns.Apply(pod("network", container("", "")))
	ns.Because("network", "network-not-ready", "this node has no pod network yet: ")
	own.NodeBecause(t, "network-not-ready", "this node has no pod network yet: ")
	write(string(whole))
	for _, name := range []string{"plugin", "address", "network"} {
		ns.Running(name)
		ns.Delete(name, 0)
	}
}
