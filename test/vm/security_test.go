package vm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"kubelot.dev/test/vm/guest"
)

// hardened shows what of the daemons' limits only a node that runs shows, and what other programs find there that they
// know from the kubelet.
func hardened(t *testing.T, _ *workload) {
	t.Run("exposure", exposed)
	t.Run("resource", resourceIsKeptOut)
	t.Run("writes", writesAreNarrow)
	t.Run("runtime", runtimeIsHidden)
	t.Run("iptables", func(t *testing.T) {
		for _, command := range []string{"iptables", "ip6tables"} {
			eventually(t, "the chain by which others find the kind of iptables", func(ctx context.Context) error {
				_, err := node.Machine.Run(ctx, command+" -t mangle -S KUBE-IPTABLES-HINT")
				return err
			})
		}
	})
	t.Run("the kernel's log", func(t *testing.T) {
		// ProtectClock= would hide it.
		pid := crew(t)["kubelot-stats.service"].MainPID
		if got := in(t, "ls -l /proc/"+pid+"/fd | grep -c /dev/kmsg || true"); got != "1" {
			t.Errorf("stats holds %s descriptors of the kernel's log, want one", got)
		}
	})
	t.Run("directories", directoriesHaveModes)
	t.Run("mounts are shared", func(t *testing.T) {
		if got := in(t, "findmnt -n -o PROPAGATION -T /var/lib/kubelet"); got != "shared" {
			t.Errorf("/var/lib/kubelet is on a mount that is %s", got)
		}
	})
}

// directoriesHaveModes shows that the directories below the kubelet's have the modes that a kubelet gives them. Its own
// is that of kubelot.tmpfiles: daemons with users of their own pass through it.
func directoriesHaveModes(t *testing.T) {
	got := in(t, "cd /var/lib/kubelet && stat -c '%n %a' . pods plugins plugins_registry device-plugins pod-resources "+
		"checkpoints")
	const want = ". 755\npods 750\nplugins 750\nplugins_registry 750\ndevice-plugins 750\npod-resources 750\n" +
		"checkpoints 700"
	if got != want {
		t.Errorf("the modes of the directories in /var/lib/kubelet are\n%s\nwant\n%s", got, want)
	}
}

// exposed holds systemd's own score of each unit that runs.
func exposed(t *testing.T) {
	goals := exposureGoals(t)
	delete(goals, "compact") // this node has the other layout
	out := in(t, "systemd-analyze security --no-pager "+strings.Join(guest.DaemonUnits(), " ")+
		" | sed -n 's/.*Overall exposure level for kubelot-\\(.*\\)\\.service: \\([0-9.]*\\) .*/\\1 \\2/p'")
	for line := range strings.Lines(out) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		score, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%q is no score: %v", line, err)
		}
		if score > goals[name] {
			t.Errorf("kubelot-%s is exposed by %.1f, the goal is %.1f", name, score, goals[name])
		}
		delete(goals, name)
	}
	if len(goals) > 0 {
		t.Errorf("systemd gives no score for %v:\n%s", goals, out)
	}
}

// exposureGoals are the most that systemd's score of each daemon's unit may be.
func exposureGoals(t *testing.T) map[string]float64 {
	data, err := os.ReadFile("../../deploy/exposure.txt")
	if err != nil {
		t.Fatal(err)
	}
	goals := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		goal, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("deploy/exposure.txt: want a daemon and its goal, got %q", line)
		}
		goals[name] = goal
	}
	return goals
}

// resourceIsKeptOut shows where the daemon that writes into the kubelet's directory may write, and where it may not.
func resourceIsKeptOut(t *testing.T) {
	pid := crew(t)["kubelot-resource.service"].MainPID
	inside := func(command string) string {
		return fmt.Sprintf("nsenter --target %s --mount -- sh -c '%s' 2>&1", pid, command)
	}
	in(t, inside("cd /var/lib/kubelet && test -s cpu_manager_state && touch x device-plugins/x pod-resources/x && "+
		"rm x device-plugins/x pod-resources/x"))
	for what, command := range map[string]string{
		"change the credentials": "touch /var/lib/kubelet/pki/x", "change plugins": "touch /var/lib/kubelet/plugins/x",
		"see volumes": "test -n \"$(ls /var/lib/kubelet/pods)\"",
		"see keys":    "cat /run/kubelot/keys/podsync.nk",
	} {
		in(t, "! "+inside(command)+" # "+what)
	}
}

// writesAreNarrow shows where the daemons with users of their own may write, and where not. Here root tries it, whom no
// mode keeps out.
func writesAreNarrow(t *testing.T) {
	units := crew(t)
	for name, c := range map[string]struct{ may, not []string }{
		"api": {
			[]string{"/var/lib/kubelet/pki", "/var/lib/kubelet/checkpoints"},
			[]string{"/var/lib/kubelet", "/etc/kubernetes", "/run/kubelot", "/etc", "/usr"},
		},
		"lease": {
			[]string{"/var/lib/kubelet/pki", "/etc/kubernetes"},
			[]string{"/var/lib/kubelet", "/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/run/kubelot", "/etc"},
		},
		"status": {nil, []string{"/var/lib/kubelet/pki", "/etc/kubernetes", "/run/kubelot", "/etc"}},
		"bus":    {[]string{"/run/kubelot"}, []string{"/var/lib/kubelet", "/etc/kubernetes", "/etc", "/run/systemd"}},
	} {
		pid := units["kubelot-"+name+".service"].MainPID
		for _, dir := range append([]string{"/run/kubelot/metrics"}, c.may...) {
			in(t, fmt.Sprintf("nsenter --target %s --mount -- sh -c 'touch %[2]s/x && rm %[2]s/x'", pid, dir))
		}
		for _, dir := range c.not {
			in(t, fmt.Sprintf("! nsenter --target %s --mount -- touch %s/x 2>&1 # %s", pid, dir, name))
		}
	}
}

// runtimeIsHidden shows that the daemons that have no business with the runtime don't see its socket, and that the
// others do.
func runtimeIsHidden(t *testing.T) {
	units := crew(t)
	for name, sees := range map[string]bool{
		"bus": false, "status": false, "lease": false, "resource": false, "pleg": true, "api": true,
	} {
		pid := units["kubelot-"+name+".service"].MainPID
		out := in(t, fmt.Sprintf("nsenter --target %s --mount -- ls /run/containerd", pid))
		if strings.Contains(out, "containerd.sock") != sees {
			t.Errorf("kubelot-%s sees in /run/containerd %q", name, out)
		}
	}
}
