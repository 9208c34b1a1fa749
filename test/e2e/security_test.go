package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

// The security context of pod and container, as the process sees it.
func TestSecurityContext(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("secure", `
  securityContext:
    runAsUser: 1000
    runAsGroup: 2000
    supplementalGroups: [3000]
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
  - name: root
    image: busybox:1.36
    command: $FOREVER
    securityContext: {runAsUser: 0, runAsGroup: 0, capabilities: {add: [NET_ADMIN]}}
  - name: privileged
    image: busybox:1.36
    command: $FOREVER
    securityContext: {runAsUser: 0, privileged: true}
`))
	p := ns.Running("secure")
	for _, c := range []struct{ container, command, want string }{
		{"app", "id -u; id -g", "1000\n2000"},
		{"app", "id -G | tr ' ' '\\n' | grep -c 3000", "1"},
		{"app", "touch /x 2>/dev/null || echo no", "no"},
		{"app", "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"},
		{"app", "grep Seccomp: /proc/self/status", "Seccomp:\t2"},
		{"app", "grep CapBnd /proc/1/status", "CapBnd:\t0000000000000400"},
		{"app", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "80"},
		{"root", "id -u", "0"},
		{"root", "touch /x && echo yes", "yes"},
		{"root", "ip link add dummy0 type dummy 2>/dev/null; ip link set lo mtu 60000 && echo yes", "yes"},
		{"privileged", "grep Seccomp: /proc/self/status", "Seccomp:\t0"},
		{"privileged", "test -e /dev/kmsg || test -e /dev/loop-control && echo devices", "devices"},
	} {
		ns.Equal(p, c.container, c.command, c.want)
	}
	if bed.Containerd1(t) {
		return // it doesn't say as which user a container runs
	}
	user := kit.Status(p, "app").User
	if user == nil || user.Linux == nil || user.Linux.UID != 1000 || user.Linux.GID != 2000 {
		t.Errorf("user in the status: %+v; want 1000:2000", user)
	}
}

// Namespaces shared with the host or within the pod.
func TestSharedNamespaces(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("host", `
  hostPID: true
  hostIPC: true
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`) + "\n---\n" + pod("shared", `
  shareProcessNamespace: true
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
  - {name: other, image: "busybox:1.36", command: [sleep, "12345"]}
`) + "\n---\n" + pod("own", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
  - {name: other, image: "busybox:1.36", command: $FOREVER}
`))
	p := ns.Running("host")
	ns.Equal(p, "app", "readlink /proc/self/ns/pid; readlink /proc/self/ns/ipc",
		hostLink(t, "pid")+"\n"+hostLink(t, "ipc"))
	p = ns.Running("shared")
	// A container runs a moment before its program does.
	kit.Eventually(t, "the other container's program and the sandbox's in the first one", func() error {
		out, err := ns.Try(p, "app", "ps -o args | grep -c '^sleep 12345'; cat /proc/1/comm")
		if err == nil && out != "1\npause" {
			err = fmt.Errorf("it sees %q", out)
		}
		return err
	})
	p = ns.Running("own")
	if a, b := ns.Exec(p, "app", "readlink /proc/self/ns/pid"),
		ns.Exec(p, "other", "readlink /proc/self/ns/pid"); a == b || a == hostLink(t, "pid") {
		t.Errorf("PID namespaces %s and %s; want one for each container", a, b)
	}
	if a, b := ns.Exec(p, "app", "readlink /proc/self/ns/net"),
		ns.Exec(p, "other", "readlink /proc/self/ns/net"); a != b || a == hostLink(t, "net") {
		t.Errorf("network namespaces %s and %s; want one for the pod", a, b)
	}
}

// An image that runs as root is refused where the pod says so.
func TestRunAsNonRoot(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("root", `
  securityContext: {runAsNonRoot: true}
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`) + "\n---\n" + pod("fine", `
  securityContext: {runAsNonRoot: true, runAsUser: 1000}
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`))
	waiting := ns.Waiting("root", "app", "CreateContainerConfigError")
	if !strings.HasPrefix(waiting.Message, "container has runAsNonRoot and image will run as root") {
		t.Errorf("message: %s", waiting.Message)
	}
	ns.Event("root", "Failed", "Error: container has runAsNonRoot and image will run as root")
	ns.Running("fine")
}

// A pod in a user namespace: root inside is nobody outside.
func TestUserNamespace(t *testing.T) {
	if bed.Containerd1(t) {
		t.Skip("containerd 1.6 has no user namespaces")
	}
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("mapped", `
  hostUsers: false
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: scratch, mountPath: /scratch}]}
  volumes: [{name: scratch, emptyDir: {}}]
`))
	p := ns.Running("mapped")
	ns.Equal(p, "app", "id -u; touch /scratch/x && stat -c %u /scratch/x", "0\n0")
	fields := strings.Fields(ns.Exec(p, "app", "cat /proc/self/uid_map"))
	if len(fields) != 3 || fields[0] != "0" || fields[1] == "0" || fields[2] != "65536" {
		t.Errorf("uid_map %v; want 65536 IDs from somewhere above 0", fields)
	}
}

// The files in memory of such a pod have the owners that it expects, also on a kernel that can't map the IDs of a tmpfs
// (before Linux 6.3), and after they were written anew.
func TestUserNamespaceInMemory(t *testing.T) {
	if bed.Containerd1(t) {
		t.Skip("containerd 1.6 has no user namespaces")
	}
	t.Parallel()
	ns := bed.Namespace(t)
	const secret = `
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {key: %s}
`
	ns.Apply(fmt.Sprintf(secret, "first") + "\n---\n" + pod("mapped", `
  hostUsers: false
  securityContext: {fsGroup: 2000, runAsUser: 1000, runAsGroup: 1000}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts:
    - {name: secret, mountPath: /secret}
    - {name: token, mountPath: /token}
    - {name: memory, mountPath: /memory}
    - {name: memory, mountPath: /part, subPath: a/b}
  volumes:
  - {name: secret, secret: {secretName: s, defaultMode: 0400}}
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}
  - {name: memory, emptyDir: {medium: Memory}}
`))
	p := ns.Running("mapped")
	ns.Equal(p, "app", "cat /secret/key; stat -L -c %u:%g /secret/key /token/token", "first0:2000\n1000:2000")
	ns.Equal(p, "app", "head -c 2 /token/token", "ey")
	ns.Equal(p, "app", "touch /memory/x /part/x && stat -c %u:%g /memory /part /memory/x /memory/a/b/x",
		"0:2000\n0:2000\n1000:2000\n1000:2000")
	ns.Kubectl("patch", "secret", "s", "--patch", `{"stringData": {"key": "second"}}`)
	kit.Eventually(t, "the Secret's change to be in the pod", func() error {
		const want = "second0:2000"
		if got := ns.Exec(p, "app", "cat /secret/key; stat -L -c %u:%g /secret/key"); strings.TrimSpace(got) != want {
			return fmt.Errorf("the pod sees %q, want %q", got, want)
		}
		return nil
	})
}

// The cgroup of a pod has its limits.
func TestResources(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	ns.Apply(pod("limited", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, resources: {limits: {cpu: 200m, memory: 32Mi}}}
`) + "\n---\n" + pod("greedy", `
  restartPolicy: OnFailure
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "tail /dev/zero; until [ -e /d/known ]; do sleep 0.2; done; exit 137"]
    resources: {limits: {memory: 16Mi}}
    volumeMounts: [{name: diary, mountPath: /d}]
`+strings.ReplaceAll(diaryVolume, "$DIR", dir)))
	p := ns.Running("limited")
	if p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("QoS class %s; want Guaranteed", p.Status.QOSClass)
	}
	ns.Equal(p, "app", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max",
		"33554432")
	p = ns.Wait("greedy", "started", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.ContainerID != ""
	})
	// The runtime learns of it and of the container's end on two ways; with the end first it says nothing of memory. So
	// the shell ends when the runtime knows. With cgroup v2 the kernel kills the shell too: then a later run may show it.
	first, known := kit.Status(p, "app").ContainerID, true
	_, id, _ := strings.Cut(first, "://")
	kit.Eventually(t, "the runtime to know of the OOM kill", func() error {
		if bed.CRIO(t) { // it says so when the container has ended, by this file of conmon
			_, err := os.Stat(bed.Bed.Path("crio", "run", "overlay-containers", id, "userdata", "oom"))
			return err
		}
		answer, err := bed.CRI.Runtime().ContainerStatus(t.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: id})
		// Where it knows while the shell runs, this run must show it.
		ended := answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		known = answer.GetStatus().GetReason() == "OOMKilled" && !ended
		if err == nil && !known && !ended {
			err = fmt.Errorf("it says %v", answer.GetStatus())
		}
		return err
	})
	if err := os.WriteFile(filepath.Join(dir, "known"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ns.Wait("greedy", "killed because it took too much memory", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		for _, run := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if run == nil || run.ContainerID != first && known {
				continue
			}
			if run.Reason == "OOMKilled" && run.ExitCode == 137 {
				return true
			}
			if known {
				t.Fatalf("state of a container that took too much memory: %+v; want OOMKilled, 137", run)
			}
		}
		return false
	})
}
