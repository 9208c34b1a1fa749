package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

// dataPod is a pod with a volume at /data. What it does there may hang.
func dataPod(name, command, volume string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: app, image: "busybox:1.36", command: %s, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, %s}]
---
`, name, command, volume)
}

const inlineNFS = `nfs: {server: 127.0.0.1, path: /srv/nfs}`

// TestNFS has pods share a directory of the kernel's own server: one names it itself, the other has it behind a claim,
// by IPv6. Then the server stops answering. Only the pods that use it notice.
func TestNFS(t *testing.T) {
	notQuick(t)
	serveNFS(t)
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n")
	ns.Apply(dataPod("writer", `[sh, -c, 'exec 3>>/data/ticks; while :; do echo tick >&3; sleep 1; done']`, inlineNFS))
	writer := ns.Running("writer")
	inPod(t, ns, "writer", "echo hello >/data/greeting")
	reader := claimNFS(t, ns)
	if got := inPod(t, ns, "reader", "cat /data/greeting"); strings.TrimSpace(got) != "hello" {
		t.Errorf("the reader reads %q", got)
	}
	if got := inPod(t, ns, "reader", "echo no 2>&1 >/data/no || true"); !strings.Contains(got, "Read-only") {
		t.Errorf("the volume should be read-only: %s", got)
	}
	mounted := in(t, "grep ' nfs4\\? ' /proc/mounts")
	for _, want := range []string{
		"[::1]:/srv/nfs /var/lib/kubelet/pods/" + string(reader.UID) + "/volumes/kubernetes.io~nfs/",
		"127.0.0.1:/srv/nfs /var/lib/kubelet/pods/" + string(writer.UID) + "/volumes/kubernetes.io~nfs/data nfs4 rw",
		"noatime",
	} {
		if !strings.Contains(mounted, want) {
			t.Errorf("no mount has %q:\n%s", want, mounted)
		}
	}
	measured(t, ns)
	usual := timed(func() { works(t, ns) })
	t.Run("Hung", func(t *testing.T) { hungNFS(t, ns.In(t), writer, reader, usual) })
	eventually(t, "the mounts and what unmounts them to go", func(ctx context.Context) error {
		// The server's rpc.mountd is none of them.
		out, err := node.Machine.Run(ctx, "grep ' nfs4\\? ' /proc/mounts; pgrep -ax 'u?mount(\\.nfs4?)?'; "+
			"ls -d /var/lib/kubelet/pods/"+string(writer.UID)+" /var/lib/kubelet/pods/"+string(reader.UID)+
			" 2>/dev/null; true")
		if err == nil && out != "" {
			err = fmt.Errorf("there is\n%s", out)
		}
		return err
	})
}

// serveNFS starts the server with a directory that anybody may write to. Its grace period would be 90 s.
func serveNFS(t *testing.T) {
	t.Helper()
	in(t, "mkdir -p /srv/nfs /etc/nfs.conf.d && chmod 0777 /srv/nfs && "+
		"printf '[nfsd]\\ngrace-time=10\\nlease-time=10\\n' >/etc/nfs.conf.d/quick.conf && "+
		"echo '/srv/nfs *(rw,sync,no_subtree_check,no_root_squash,insecure)' >/etc/exports && "+
		"systemctl start nfs-server && systemctl reload nfs-server")
	// A server that stops while something is mounted would leave what the next test can't end.
	undo(t, "timeout 300 sh -c \"while grep -q ' nfs4\\? ' /proc/mounts; do sleep 1; done\"; systemctl stop nfs-server")
}

// claimNFS starts the pod reader, whose volume is behind a claim.
func claimNFS(t *testing.T, ns *kit.Namespace) *corev1.Pod {
	t.Helper()
	ns.Volume(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "::1", Path: "/srv/nfs"}},
		func(s *corev1.PersistentVolumeSpec) {
			s.MountOptions, s.NodeAffinity = []string{"nfsvers=4.2", "noatime"}, nil
			s.ClaimRef = &corev1.ObjectReference{Namespace: ns.Name, Name: "shared"}
		})
	ns.Apply(ns.Claim("shared", "") + dataPod("reader", forever,
		"persistentVolumeClaim: {claimName: shared, readOnly: true}"))
	return ns.Running("reader")
}

// measured waits until the node's metrics say how full the claim's volume is.
func measured(t *testing.T, ns *kit.Namespace) {
	t.Helper()
	eventually(t, "the figures of the claim's volume", func(context.Context) error {
		out, err := ns.TryKubectl("get", "--raw", "/api/v1/nodes/"+guest.Name+"/proxy/metrics")
		want := `kubelet_volume_stats_capacity_bytes{namespace="` + ns.Name + `",persistentvolumeclaim="shared"}`
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("there is no %s", want)
		}
		return err
	})
}

// hungNFS is TestNFS while nothing comes to the server any more.
func hungNFS(t *testing.T, ns *kit.Namespace, writer, reader *corev1.Pod, usual time.Duration) {
	in(t, filter("-I"))
	undo(t, filter("-D")+" || true")
	// A list might come from memory.
	hung := in(t, fmt.Sprintf("timeout -s KILL 5 touch /var/lib/kubelet/pods/%s/volumes/kubernetes.io~nfs/data/new; "+
		"echo $?", writer.UID))
	if hung != "137" {
		t.Fatalf("the server still answers: %s", hung)
	}
	ns.Apply(dataPod("waits", forever, inlineNFS))
	eventually(t, "kubelot why to name the server", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "kubelot why "+ns.Name+"/waits")
		if err == nil && !strings.Contains(out, "127.0.0.1") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	inUsualTime(t, "another pod starts and goes", usual, func() { works(t, ns) })
	waits := pod(t, ns, "waits")
	inUsualTime(t, "the pod whose mount hangs goes", usual, func() {
		ns.Delete("waits", 1)
		ns.Gone(waits)
	})
	inUsualTime(t, "the node's figures come", usual, func() {
		ns.Kubectl("get", "--raw", "/api/v1/nodes/"+guest.Name+"/proxy/stats/summary")
	})
	inUsualTime(t, "the daemons restart", 4*usual, func() {
		for _, daemon := range []string{"volume", "stats", "gc", "podsync"} {
			if _, err := node.Systemctl(t.Context(), "restart kubelot-"+daemon); err != nil {
				t.Fatal(err)
			}
		}
	})
	inUsualTime(t, "another pod starts and goes after the restart", usual, func() { works(t, ns) })
	if p := pod(t, ns, "writer"); !kit.Ready(p) || p.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the hung pod is %+v", p.Status)
	}
	// It has no file open there. An unmount that hangs is forced after one minute.
	t.Logf("a pod with a volume that hangs is gone after %s", timed(func() {
		ns.Delete("reader", 5)
		ns.Gone(reader)
	}))
	// The kernel lets no process end that writes there before the server answers.
	ns.Delete("writer", 1)
	eventually(t, "kubelot why to name the container that doesn't end", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "kubelot why "+ns.Name+"/writer")
		if err == nil && !strings.Contains(out, "a process that waits for a disk (state D) can't be killed") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	in(t, filter("-D"))
	ns.Gone(writer)
}

// filter adds or deletes the rules that drop what comes to the server.
func filter(what string) string {
	rule := " -w " + what + " INPUT -p tcp --dport 2049 -j DROP"
	return "iptables" + rule + " && ip6tables" + rule
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}

// inUsualTime fails if something takes much longer than while all is well. A machine that is emulated isn't steady.
func inUsualTime(t *testing.T, what string, usual time.Duration, do func()) {
	t.Helper()
	took := timed(do)
	t.Logf("%s in %s", what, took)
	if limit := 2*usual + 20*time.Second; took > limit {
		t.Errorf("%s in %s, as if nothing hung in at most %s", what, took, limit)
	}
}
