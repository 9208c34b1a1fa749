package packages

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/kubeadm"
)

// onAnyHost lets the node work in a container on a host with either version of cgroups and little free disk, and gives
// it a serving certificate by request.
const onAnyHost = `serverTLSBootstrap: true
evictionHard: {memory.available: 50Mi}
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: [none]
cgroupDriver: cgroupfs
`

// member is a machine for a cluster of kubeadm: its control plane is real and on this host, its container runtime the
// scripted one, which starts no processes.
type member struct {
	*system
	cluster *cluster.Cluster
	admin   *kubeadm.Cluster
	client  *kubernetes.Clientset
	address netip.Addr
}

// runtimeUnit runs the scripted runtime at containerd's socket.
const runtimeUnit = `[Service]
RuntimeDirectory=containerd
ExecStart=/usr/local/bin/scripted-cri --socket /run/containerd/containerd.sock
Restart=always
`

// kernelFlags are those that the kubelet wants to have, and doesn't start without. They are the host's, which a
// container can't set: it sees files with these values instead.
const kernelFlags = `vm/overcommit_memory 1
kernel/panic 10
kernel/panic_on_oops 1`

// newMember is a booted machine with kubeadm, without a node agent.
func newMember(t *testing.T) *member {
	t.Helper()
	one := built(t, "KUBELOT_PACKAGES")
	ctx := t.Context()
	c, err := cluster.Start(ctx, cluster.Options{Out: os.Stderr, ControlPlane: true, Remote: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := &member{cluster: c, address: c.Bed.Gateway.Next()}
	if m.admin, err = kubeadm.Prepare(ctx, c, onAnyHost, "--node-monitor-grace-period=30m"); err != nil {
		t.Fatal(err)
	}
	config, err := c.ControlPlane.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	if m.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	scripted, err := c.Tools.EnsureScriptedCRI(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.system = debian(t, "bookworm-kubeadm", "systemd", "systemd-sysv", "dbus", "mount", "iproute2", "iptables", "kmod")
	m.bring(t, one, "packages")
	for from, to := range map[string]string{
		scripted: "usr/local/bin/scripted-cri", c.Tools.Path("kubeadm"): "usr/bin/kubeadm",
		c.Tools.Path("k8s-testbed"): "usr/local/lib/k8s-testbed",
	} {
		target := filepath.Join(m.root, to)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, "cp", "--dereference", from, target)
	}
	m.put(t, "/etc/hostname", "member\n")
	m.put(t, "/etc/hosts", "127.0.0.1 localhost\n"+m.address.String()+" member\n")
	m.put(t, "/etc/systemd/system/runtime.service", runtimeUnit)
	m.put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", kubeadm.DropIn)
	m.put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-ip="+m.address.String()+"\n")
	m.network = "--network-bridge=" + c.Bed.Bridge
	// systemd-nspawn that is killed leaves its side of the network.
	unplug := func() { _ = exec.Command("ip", "link", "del", "vb-"+filepath.Base(m.dir)).Run() }
	unplug()
	t.Cleanup(unplug)
	m.boot(t)
	m.run(t, "sh", "-e", "-c", fmt.Sprintf(`ip addr add %s/%d dev host0
ip link set host0 up
ip route add default via %s
echo 1 >/proc/sys/net/ipv4/ip_forward
rm -f /dev/kmsg && mknod /dev/kmsg c 1 11
while read -r flag value; do
  echo "$value" >"/run/${flag##*/}"
  mount --bind "/run/${flag##*/}" "/proc/sys/$flag"
done <<FLAGS
%s
FLAGS
systemctl start runtime
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
chmod 0660 /run/containerd/containerd.sock`, m.address, c.Bed.Subnet.Bits(), c.Bed.Gateway, kernelFlags))
	return m
}

// unchecked is the one check of kubeadm's that a container of another host's kernel may fail.
const unchecked = " --ignore-preflight-errors=SystemVerification 2>&1"

// join joins the cluster and waits until the node is Ready.
func (m *member) join(t *testing.T) {
	t.Helper()
	j, err := m.admin.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := m.run(t, "sh", "-c", j.Command()+unchecked)
	if !strings.Contains(out, "This node has joined the cluster") {
		t.Fatalf("kubeadm says\n%s", out)
	}
	eventually(t, "the node is Ready", func() error {
		_, err := m.readySince(t.Context())
		return err
	})
}

func (m *member) node(ctx context.Context) (*corev1.Node, error) {
	return m.client.CoreV1().Nodes().Get(ctx, "member", metav1.GetOptions{})
}

// readySince is since when the node has been Ready; an error if it isn't.
func (m *member) readySince(ctx context.Context) (string, error) {
	n, err := m.node(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.UTC().String(), nil
		}
	}
	return "", fmt.Errorf("its conditions are %+v; the log ends:\n%s", n.Status.Conditions, m.journal("-n", "30"))
}

// approve approves the node's requests for a serving certificate, and waits until the node's API has it.
func (m *member) approve(t *testing.T) {
	t.Helper()
	ctx, requests := t.Context(), m.client.CertificatesV1().CertificateSigningRequests()
	eventually(t, "the node's API has a certificate of the cluster", func() error {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Spec.SignerName == certificatesv1.KubeletServingSignerName && len(r.Status.Conditions) == 0 {
				r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
					Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "TheTest",
				}}
				if _, err := requests.UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
		}
		target, err := os.Readlink(filepath.Join(m.root, "var/lib/kubelet/pki/kubelet-server-current.pem"))
		if err != nil {
			return fmt.Errorf("of %d requests none has become the serving certificate: %w", len(list.Items), err)
		}
		// By way of the API server, which shows itself with a certificate of the authority in kubeadm's ca.crt.
		_, err = m.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/member/proxy/pods").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("with the certificate %s: %w", target, err)
		}
		return nil
	})
}

// runPod makes a pod with a volume and a probe, waits until it is Ready, and returns what must not change of it.
func (m *member) runPod(t *testing.T) (state func() string) {
	t.Helper()
	ctx, pods := t.Context(), m.client.CoreV1().Pods("default")
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: "docker.io/library/busybox:1.36", ImagePullPolicy: corev1.PullIfNotPresent,
				VolumeMounts: []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					Exec: &corev1.ExecAction{Command: []string{"true"}},
				}},
			}},
			Volumes: []corev1.Volume{{Name: "memory", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
			}}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	look := func() (ready bool, text string) {
		p, err := pods.Get(ctx, "stays", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, s := range p.Status.ContainerStatuses {
			text += fmt.Sprintf("%s %s restarts=%d ", s.Name, s.ContainerID, s.RestartCount)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = c.Status == corev1.ConditionTrue
				text += fmt.Sprintf("Ready=%s since %s: %s", c.Status, c.LastTransitionTime.UTC(), c.Message)
			}
		}
		return ready, text
	}
	eventually(t, "the pod is Ready", func() error {
		if ready, text := look(); !ready {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	return func() string {
		_, text := look()
		return text
	}
}

// reset leaves the cluster, and checks that nothing runs, is mounted or stays in kubeadm's directories.
func (m *member) reset(t *testing.T) {
	t.Helper()
	out := m.run(t, "sh", "-c", "kubeadm reset --force --cleanup-tmp-dir 2>&1")
	if strings.Contains(strings.ToLower(out), "failed") {
		t.Errorf("kubeadm reset says\n%s", out)
	}
	for what, command := range map[string]string{
		"processes": "grep -lE '^kubel[eo]t' /proc/[0-9]*/comm || true",
		"mounts":    "grep ' /var/lib/kubelet/' /proc/mounts || true",
		"files":     "find /var/lib/kubelet /etc/kubernetes -type f",
	} {
		if left := m.run(t, "sh", "-c", command); left != "" {
			t.Errorf("after the reset %s are left:\n%s", what, left)
		}
	}
	ctx := t.Context()
	if err := m.client.CoreV1().Nodes().Delete(ctx, "member", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	err := m.client.CoreV1().Pods("default").DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}
