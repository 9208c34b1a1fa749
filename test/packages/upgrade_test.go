package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/test/testbed/tools"
)

const (
	links = "/usr/lib/kubelot/bin/kubelot-"
	// newcomer is a daemon that the older version doesn't have.
	newcomer = "resource"
)

// fails is a daemon of a version that ends at once.
const fails = "#!/bin/sh\n[ \"$1\" = --version ] && echo kubelot-x version v0.0.3 && exit 0\nexit 7\n"

// TestKubelotUpgrade is the way of machines without a package manager: versions lie side by side, kubelot install
// leaves daemons that run alone, and kubelot upgrade moves them, with systemd. A daemon that fails goes back to what it
// ran, wherever its link leads to by then. A daemon that is new is started, and stopped on the way back.
func TestKubelotUpgrade(t *testing.T) {
	s := machineWithoutPackages(t)
	all := len(daemonNames())
	s.awaitCrew(t, all-1)
	s.healthy(t)
	before := s.running(t)

	out := s.run(t, "/opt/two/kubelot", "install")
	if !strings.Contains(out, "kubelot upgrade v0.0.2 ") {
		t.Errorf("kubelot install doesn't say what is next:\n%s", out)
	}
	s.runs(t, "lease", "v0.0.1", before["kubelot-lease"])
	if target := s.run(t, "readlink", links+"lease"); target != "../v0.0.1/kubelot-lease\n" {
		t.Errorf("kubelot install has moved the link of a daemon that runs to %s", target)
	}

	// A version that fails, whose link somebody has moved before.
	s.put(t, "/usr/lib/kubelot/v0.0.3/kubelot-lease", fails)
	s.run(t, "chmod", "0755", "/usr/lib/kubelot/v0.0.3/kubelot-lease")
	s.run(t, "ln", "-sfn", "../v0.0.3/kubelot-lease", links+"lease")
	out, err := s.try("kubelot", "upgrade", "--patience=20s", "v0.0.3", "lease")
	if err == nil || !strings.Contains(out, "it runs ../v0.0.1/kubelot-lease again; 0 of 1 daemons run v0.0.3") {
		t.Fatalf("a version that fails: %v\n%s", err, out)
	}
	s.runs(t, "lease", "v0.0.1", "")
	s.healthy(t)
	now := s.awaitCrew(t, all-1)
	for name, pid := range before {
		if now[name] != pid && name != "kubelot-lease" {
			t.Errorf("%s was process %s and is %s", name, pid, now[name])
		}
	}

	if out, err := s.try("kubelot", "upgrade", "v0.0.2"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, pid := range s.awaitCrew(t, all) {
		s.runs(t, strings.TrimPrefix(name, "kubelot-"), "v0.0.2", pid)
	}
	s.healthy(t)

	out, err = s.try("kubelot", "upgrade", "v0.0.1")
	if err != nil || !strings.Contains(out, "v0.0.1 doesn't have kubelot-"+newcomer) {
		t.Fatalf("%v\n%s", err, out)
	}
	if last := s.awaitCrew(t, all-1); last["kubelot-"+newcomer] != "" {
		t.Errorf("there run %v", last)
	}
	s.healthy(t)
	// It stays away, also where the target is started again, as at a boot.
	s.run(t, "systemctl", "restart", "kubelot.target")
	s.awaitCrew(t, all-1)
	if state := s.state("kubelot-" + newcomer); state != "inactive" {
		t.Errorf("kubelot-%s is %s", newcomer, state)
	}
}

// machineWithoutPackages is a booted system on which v0.0.1 was installed and runs, without the newcomer.
func machineWithoutPackages(t *testing.T) *system {
	t.Helper()
	one, next := built(t, "KUBELOT_EXECUTABLES"), built(t, "KUBELOT_EXECUTABLES_NEXT")
	box, err := tools.Ensure(t.Context(), os.Stderr, tools.RuntimeOnly)
	if err != nil {
		t.Fatal(err)
	}
	scripted, err := box.EnsureScriptedCRI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := debian(t, "bookworm-systemd", systemdPackages...)
	for from, to := range map[string]string{one: "opt/one", next: "opt/two", scripted: "usr/local/bin/scripted-cri"} {
		target := filepath.Join(s.root, to)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, "cp", "--recursive", "--no-dereference", from, target)
	}
	s.put(t, "/etc/systemd/system/runtime.service", runtimeUnit)
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.put(t, "/etc/default/kubelot", "KUBELOT_ARGS=--config=/var/lib/kubelet/config.yaml\n")
	s.boot(t)
	s.run(t, "sh", "-e", "-c", `rm -f /dev/kmsg && mknod /dev/kmsg c 1 11
systemctl start runtime
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
chmod 0660 /run/containerd/containerd.sock`)
	s.run(t, "/opt/one/kubelot", "install")
	s.run(t, "rm", "/usr/lib/kubelot/v0.0.1/kubelot-"+newcomer, links+newcomer)
	s.run(t, "systemctl", "enable", "--now", "kubelot.target")
	return s
}

// runs checks which version a daemon's process is of. With a process ID, it must be that one.
func (s *system) runs(t *testing.T, daemon, version, pid string) {
	t.Helper()
	now := s.running(t)["kubelot-"+daemon]
	if pid != "" && now != pid {
		t.Errorf("kubelot-%s was process %s and is %s", daemon, pid, now)
	}
	path := strings.TrimSpace(s.run(t, "readlink", "/proc/"+now+"/exe"))
	if !strings.HasPrefix(path, "/usr/lib/kubelot/"+version+"/") {
		t.Errorf("kubelot-%s runs %s, and not %s", daemon, path, version)
	}
}

// healthy waits until each daemon says of itself that it is well.
func (s *system) healthy(t *testing.T) {
	t.Helper()
	eventually(t, "all daemons are healthy", func() error {
		out, err := s.try("kubelot", "top", "--once")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			if len(words) < 2 || !slices.Contains(daemonNames(), "kubelot-"+words[0]) {
				continue
			}
			// Nothing is known of one that never ran, and one that was stopped has said so.
			away := words[0] == newcomer && s.running(t)["kubelot-"+newcomer] == ""
			if words[1] != "healthy" && !away {
				return fmt.Errorf("kubelot top says\n%s", out)
			}
		}
		return nil
	})
}
