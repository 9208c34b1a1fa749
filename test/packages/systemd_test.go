package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// config is of a node without an API server and without a container runtime: the daemons run, and no pod does.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
cgroupDriver: cgroupfs
enableServer: false
imageGCHighThresholdPercent: 100
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
`

// systemdPackages are what a system needs that boots.
var systemdPackages = []string{"systemd", "systemd-sysv", "dbus"}

// node is a booted system with the packages, and the node's configuration.
func node(t *testing.T) *system {
	t.Helper()
	one, next := built(t, "KUBELOT_PACKAGES"), built(t, "KUBELOT_PACKAGES_NEXT")
	s := debian(t, "bookworm-systemd", systemdPackages...)
	s.bring(t, one, "packages")
	s.bring(t, next, "packages/next")
	s.boot(t)
	return s
}

func (s *system) put(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// As kubeadm writes them: daemons with users of their own read them.
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// state is what systemctl is-active says of a unit.
func (s *system) state(unit string) string {
	out, _ := s.try("systemctl", "is-active", unit)
	return strings.TrimSpace(out)
}

// running are the daemons that run, with their processes.
func (s *system) running(t *testing.T) map[string]string {
	t.Helper()
	processes := map[string]string{}
	out := s.run(t, "systemctl", "list-units", "--plain", "--no-legend", "--state=active", "kubelot-*.service")
	for line := range strings.Lines(out) {
		unit := strings.Fields(line)[0]
		pid := strings.TrimSpace(s.run(t, "systemctl", "show", "--value", "--property=MainPID", unit))
		// Two units have none: they are for the time when the system stops.
		if pid != "0" {
			processes[strings.TrimSuffix(unit, ".service")] = pid
		}
	}
	return processes
}

// awaitCrew waits until these daemons run, and returns their processes.
func (s *system) awaitCrew(t *testing.T, count int) map[string]string {
	t.Helper()
	var processes map[string]string
	eventually(t, fmt.Sprintf("%d daemons run", count), func() error {
		if processes = s.running(t); len(processes) != count {
			return fmt.Errorf("there are %v; the log ends:\n%s", processes, s.journal("-n", "40"))
		}
		return nil
	})
	return processes
}

func (s *system) journal(args ...string) string {
	out, _ := s.try(append([]string{"journalctl", "--no-pager", "-o", "cat"}, args...)...)
	return out
}

// daemons is how many packages of the crew have a unit.
var daemons = len(daemonNames())

func TestUnderSystemd(t *testing.T) {
	s := node(t)
	s.apt(t, "install", below("/packages", crew...)...)
	if got := s.running(t); len(got) > 0 || s.state("kubelot.target") != "inactive" {
		t.Fatalf("the installation has started %v, kubelot.target is %s", got, s.state("kubelot.target"))
	}
	if out, _ := s.try("systemctl", "is-enabled", "kubelot.target"); out != "disabled\n" {
		t.Errorf("kubelot.target is %s", out)
	}
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.put(t, "/etc/default/kubelot", "KUBELOT_ARGS=--config=/var/lib/kubelet/config.yaml\n")
	s.run(t, "systemctl", "enable", "--now", "kubelot.target")
	s.awaitCrew(t, daemons)
	s.slowsDown(t)
	before := s.awaitCrew(t, daemons)

	s.apt(t, "install", "/packages/next/kubelot-lease.deb")
	after := s.awaitCrew(t, daemons)
	for name := range after {
		if restarted := before[name] != after[name]; restarted != (name == "kubelot-lease") {
			t.Errorf("with a new version of kubelot-lease, %s is restarted: %v", name, restarted)
		}
	}

	// A daemon that comes back to a crew that runs joins it.
	s.apt(t, "remove", "kubelot-gc")
	s.awaitCrew(t, daemons-1)
	s.apt(t, "install", below("/packages", "kubelot-gc", "kubelot")...)
	again := s.awaitCrew(t, daemons)
	if again["kubelot-pleg"] != after["kubelot-pleg"] {
		t.Error("another daemon was restarted")
	}

	s.apt(t, "purge", "kubelot*")
	if got := s.running(t); len(got) > 0 || s.state("kubelot.target") != "inactive" {
		t.Errorf("after the purge there run %v, kubelot.target is %s", got, s.state("kubelot.target"))
	}
	for _, path := range []string{
		"/etc/systemd/system/multi-user.target.wants/kubelot.target", "/etc/default/kubelot", "/usr/lib/kubelot",
	} {
		if s.has(path) {
			t.Errorf("after the purge there is %s", path)
		}
	}
	if _, err := s.try("test", "!", "-e", "/run/kubelot"); err != nil {
		t.Error("after the purge there is /run/kubelot")
	}
}

// slowsDown breaks the configuration of one daemon. systemd starts it again and again, and it waits longer each time
// and says why, in one line of its log and in systemctl status. With a correct configuration it starts at once.
func (s *system) slowsDown(t *testing.T) {
	t.Helper()
	const dir = "/etc/systemd/system/kubelot-lease.service.d"
	s.put(t, dir+"/broken.conf", "[Service]\nExecStart=\n"+
		"ExecStart=/usr/lib/kubelot/bin/kubelot-lease --config=/nowhere.yaml\n")
	s.run(t, "systemctl", "daemon-reload")
	s.run(t, "systemctl", "restart", "--no-block", "kubelot-lease")
	eventually(t, "kubelot-lease waits 2 s before a start", func() error {
		out, err := s.try("systemctl", "show", "--value", "--property=StatusText", "kubelot-lease")
		if err == nil && (!strings.Contains(out, "times in a row and waits 2s ") || !strings.Contains(out, "/nowhere.yaml")) {
			err = fmt.Errorf("systemd says %q of it", out)
		}
		return err
	})
	var waits []string
	for line := range strings.Lines(s.journal("-u", "kubelot-lease")) {
		if _, rest, found := strings.Cut(line, " times in a row and waits "); found {
			wait, why, _ := strings.Cut(rest, " before it starts again; the last time: ")
			waits = append(waits, wait)
			if !strings.Contains(why, "/nowhere.yaml") {
				t.Errorf("it doesn't say why: %q", line)
			}
		}
	}
	if len(waits) < 2 || !slices.Equal(waits[:2], []string{"1s", "2s"}) {
		t.Errorf("the waits are %q", waits)
	}
	s.run(t, "rm", "-r", dir)
	s.run(t, "systemctl", "daemon-reload")
	s.run(t, "systemctl", "restart", "kubelot-lease")
	if lines := strings.Count(s.journal("-u", "kubelot-lease"), " times in a row "); lines > len(waits)+1 {
		t.Errorf("after the mending it has waited too: %d lines, and %d before", lines, len(waits))
	}
}

// The compact layout takes the place of the units, and the other way round.
func TestLayoutsTakeEachOthersPlace(t *testing.T) {
	s := node(t)
	s.apt(t, "install", below("/packages", crew...)...)
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.put(t, "/etc/default/kubelot", "KUBELOT_ARGS=--config=/var/lib/kubelet/config.yaml\n")
	s.run(t, "systemctl", "enable", "--now", "kubelot.target")
	s.awaitCrew(t, daemons)
	s.apt(t, "install", "/packages/kubelot-compact.deb")
	if got := s.awaitCrew(t, 1); got["kubelot-compact"] == "" {
		t.Errorf("there runs %v", got)
	}
	s.apt(t, "install", below("/packages", crew...)...)
	if got := s.awaitCrew(t, daemons); got["kubelot-compact"] != "" {
		t.Errorf("there run %v", got)
	}
}

// What kubeadm does: it asks for the version, stops the kubelet, writes its files, and restarts the kubelet.
func TestKubeadmsWay(t *testing.T) {
	s := node(t)
	s.apt(t, "install", below("/packages", append(crew, "kubelot-kubelet")...)...)
	if out := s.run(t, "kubelet", "--version"); out != "Kubernetes v1.36.3\n" {
		t.Errorf("kubelet --version prints %q", out)
	}
	s.run(t, "systemctl", "is-enabled", "kubelet")
	s.run(t, "systemctl", "start", "kubelet")
	eventually(t, "the kubelet waits for its configuration", func() error {
		if state := s.state("kubelet"); state != "activating" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if got := s.running(t); len(got) > 0 {
		t.Errorf("without a configuration there run %v", got)
	}
	s.run(t, "systemctl", "stop", "kubelet")
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3 --hostname-override=n1\"\n")
	s.put(
		t,
		"/etc/default/kubelet",
		`KUBELET_EXTRA_ARGS="--node-labels=a=b '--manifest-url-header=X:two words' --kubeconfig= --bootstrap-kubeconfig="`+"\n",
	)
	s.run(t, "systemctl", "daemon-reload")
	s.run(t, "systemctl", "restart", "kubelet")
	first := s.awaitCrew(t, daemons)
	if state := s.state("kubelet"); state != "active" {
		t.Errorf("the kubelet is %s", state)
	}
	for name, pid := range first {
		args := strings.Split(s.run(t, "cat", "/proc/"+pid+"/cmdline"), "\x00")
		for _, want := range []string{
			"--config=/var/lib/kubelet/config.yaml", "--node-ip=10.1.2.3", "--hostname-override=n1", "--node-labels=a=b",
			"--manifest-url-header=X:two words",
		} {
			if !slices.Contains(args, want) {
				t.Errorf("%s runs without %q: %q", name, want, args)
			}
		}
	}

	// kubeadm upgrade node writes the configuration and restarts the kubelet: all daemons read it anew.
	s.run(t, "systemctl", "restart", "kubelet")
	eventually(t, "all daemons are new", func() error {
		now := s.running(t)
		for name, pid := range first {
			if now[name] == pid || now[name] == "" {
				return fmt.Errorf("%s is %q, it was %s", name, now[name], pid)
			}
		}
		return nil
	})

	s.stoppedByEitherName(t)

	// A drop-in of kubeadm's own package, which sets the same again, changes nothing. Proxies reach the daemons.
	s.put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\nEnvironment=NO_PROXY=.svc\n"+
		"ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS\n")
	s.run(t, "systemctl", "daemon-reload")
	s.run(t, "systemctl", "restart", "kubelet")
	eventually(t, "the drop-in has an effect", func() error {
		args, err := s.try("cat", "/proc/"+s.running(t)["kubelot-bus"]+"/cmdline")
		if err == nil && strings.Contains(args, "node-labels") {
			err = fmt.Errorf("the bus runs with %q", args)
		}
		return err
	})
	now := s.awaitCrew(t, daemons)
	environ := s.run(t, "cat", "/proc/"+now["kubelot-lease"]+"/environ")
	if !strings.Contains(environ, "NO_PROXY=.svc\x00") {
		t.Errorf("kubelot-lease runs with the environment %q", environ)
	}

	s.run(t, "rm", "-r", "/usr/lib/systemd/system/kubelet.service.d")
	// Installed again after a removal, it takes its place again, whatever kubeadm reset has removed meanwhile.
	s.apt(t, "remove", "kubelot-kubelet")
	s.run(t, "find", "/var/lib/kubelet", "-mindepth", "1", "-delete")
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.apt(t, "install", below("/packages", "kubelot-kubelet")...)
	s.run(t, "systemctl", "is-enabled", "kubelet")
	s.awaitCrew(t, daemons)
	s.apt(t, "purge", "kubelot-kubelet")
	if got := s.running(t); len(got) > 0 || s.has("/etc/systemd/system/multi-user.target.wants/kubelet.service") ||
		s.has("/etc/systemd/system/kubelot-.service.d") {
		t.Errorf("after the removal there run %v, or the kubelet is enabled, or its links are there", got)
	}
}

// stoppedByEitherName stops and starts the crew as the kubelet, and as itself.
func (s *system) stoppedByEitherName(t *testing.T) {
	t.Helper()
	for _, unit := range []string{"kubelet", "kubelot.target"} {
		s.run(t, "systemctl", "stop", unit)
		stopped := func() error {
			got, kubelet, target := s.running(t), s.state("kubelet"), s.state("kubelot.target")
			if len(got) > 0 || kubelet != "inactive" || target != "inactive" {
				return fmt.Errorf("there run %v, the kubelet is %s, the target %s", got, kubelet, target)
			}
			return nil
		}
		if unit == "kubelet" {
			// kubeadm goes on when systemctl returns.
			if err := stopped(); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "all is stopped by "+unit, stopped)
		s.run(t, "systemctl", "start", "kubelet")
		s.awaitCrew(t, daemons)
		eventually(t, "the target is reached", func() error {
			if state := s.state("kubelot.target"); state != "active" {
				return fmt.Errorf("it is %s", state)
			}
			return nil
		})
	}
}
