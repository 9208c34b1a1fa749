package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// Volumes of the node's own disk and memory.
func TestNodeVolumes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	ns.Apply(strings.ReplaceAll(pod("disk", `
  securityContext: {fsGroup: 4321}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    env: [{name: WHO, value: me}]
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: scratch, mountPath: /sub, subPath: a/b}
    - {name: scratch, mountPath: /expr, subPathExpr: "dir-$(WHO)"}
    - {name: scratch, mountPath: /ro, readOnly: true}
    - {name: memory, mountPath: /memory}
    - {name: host, mountPath: /host}
    - {name: hostfile, mountPath: /hostfile}
    - {name: made, mountPath: /made}
  - name: other
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - {name: scratch, emptyDir: {sizeLimit: 10Mi}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: host, hostPath: {path: $DIR, type: Directory}}
  - {name: hostfile, hostPath: {path: $DIR/file, type: File}}
  - {name: made, hostPath: {path: $DIR/made/here, type: DirectoryOrCreate}}
`), "$DIR", dir))
	p := ns.Running("disk")
	ns.Exec(p, "app",
		"echo -n shared > /scratch/x; echo -n below > /sub/y; echo -n expr > /expr/z; echo -n up > /made/new")
	ns.Equal(p, "other", "cat /scratch/x /scratch/a/b/y /scratch/dir-me/z", "sharedbelowexpr")
	for command, want := range map[string]string{
		"touch /ro/x 2>/dev/null || echo no":                                        "no",
		"stat -f -c %T /memory":                                                     "tmpfs",
		"df -k /memory | awk 'NR==2{print $2}'":                                     "1024",
		"dd if=/dev/zero of=/memory/big bs=1k count=2000 2>&1 | grep -c 'No space'": "1",
		"cat /host/file":                                                            "from the host",
		"cat /hostfile":                                                             "from the host",
		"stat -c %g /scratch":                                                       "4321",
		"stat -c %A /scratch":                                                       "drwxrwsrwx",
		"id -G | tr ' ' '\\n' | grep -c 4321":                                       "1",
	} {
		ns.Equal(p, "app", command, want)
	}
	if err := contains(filepath.Join(dir, "made/here/new"), "up"); err != nil {
		t.Error(err)
	}
	ns.Delete("disk", 1)
	ns.Gone(p)
	if err := contains(filepath.Join(dir, "file"), "from the host"); err != nil {
		t.Errorf("after the pod: %v", err)
	}
}

// Mount propagation between a container and the host, both ways.
func TestMountPropagation(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("mounter", `
  containers:
  - name: app
    image: busybox:1.36
    securityContext: {privileged: true}
    command: [sh, -c, "mkdir -p /shared/m && mount -t tmpfs none /shared/m && touch /shared/m/seen; trap 'umount /shared/m; exit 0' TERM; while :; do sleep 1000 & wait; done"]
    volumeMounts: [{name: shared, mountPath: /shared, mountPropagation: Bidirectional}]
  - name: follower
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: shared, mountPath: /shared, mountPropagation: HostToContainer}]
  - name: private
    image: busybox:1.36
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]
    volumeMounts: [{name: shared, mountPath: /shared}]
  volumes: [{name: shared, emptyDir: {}}]
`))
	p := ns.Running("mounter")
	ns.HeedsTERM(p, "app")
	kit.Eventually(t, "the mount in the other container", func() error {
		_, err := ns.Try(p, "follower", "test -e /shared/m/seen")
		return err
	})
	ns.Delete("mounter", 600)
	ns.Gone(p)
	kit.Eventually(t, "the node to be clean", func() error { return bed.Leftovers(t.Context(), p) })
}

// A pod with a host path of the wrong type doesn't start, and says why.
func TestHostPathType(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("wrong", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: host, mountPath: /host}]}
  volumes: [{name: host, hostPath: {path: /proc/version, type: Directory}}]
`))
	ns.Event("wrong", "FailedMount", "hostPath type check failed: /proc/version is not a directory")
	p := ns.Phase("wrong", corev1.PodPending)
	ns.Delete("wrong", 1)
	ns.Gone(p)
}

// An image as a volume.
func TestImageVolume(t *testing.T) {
	if bed.Containerd1(t) {
		t.Skip("containerd 1.6 mounts no images")
	}
	t.Parallel()
	ns := bed.Namespace(t)
	ref := push(t, "volumes/data")
	ns.Apply(strings.ReplaceAll(pod("mounted", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: image, mountPath: /image}, {name: image, mountPath: /bin-of-it, subPath: bin}]
  volumes: [{name: image, image: {reference: $REF, pullPolicy: IfNotPresent}}]
`), "$REF", ref))
	p := ns.Running("mounted")
	ns.Equal(p, "app", "test -x /image/bin/busybox && echo there; test -x /bin-of-it/busybox && echo there; touch "+
		"/image/x 2>/dev/null || echo no", "there\nthere\nno")
}

// What is mounted inside a read-only mount can be written to, unless that is recursive.
func TestRecursiveReadOnly(t *testing.T) {
	if bed.Containerd1(t) {
		t.Skip("containerd 1.6 mounts nothing read-only recursively")
	}
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	if err := errors.Join(os.Mkdir(inner, 0o777), syscall.Mount("tmpfs", inner, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(inner, syscall.MNT_DETACH) })
	ns.Apply(strings.ReplaceAll(pod("reader", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts:
    - {name: host, mountPath: /plain, readOnly: true}
    - {name: host, mountPath: /all, readOnly: true, recursiveReadOnly: Enabled}
  volumes: [{name: host, hostPath: {path: $DIR}}]
`), "$DIR", dir))
	p := ns.Running("reader")
	ns.Equal(p, "app",
		"for f in /plain/x /all/x /plain/inner/x /all/inner/x; do touch $f 2>/dev/null && echo $f; done; true",
		"/plain/inner/x")
	shown := map[string]string{}
	for _, m := range kit.Status(p, "app").VolumeMounts {
		if m.RecursiveReadOnly != nil {
			shown[m.MountPath] = string(*m.RecursiveReadOnly)
		}
	}
	if shown["/plain"] != "Disabled" || shown["/all"] != "Enabled" {
		t.Errorf("the status shows %v", shown)
	}
}
