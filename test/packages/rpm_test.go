package packages

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// rpmSystem is a booted Debian that also has rpm, with the packages for it. It lacks what these depend on, so nothing
// asks for dependencies; their scripts run as on a Red Hat system, with the same arguments and a systemd.
func rpmSystem(t *testing.T) *system {
	t.Helper()
	one, next := built(t, "KUBELOT_PACKAGES"), built(t, "KUBELOT_PACKAGES_NEXT")
	s := debian(t, "bookworm-rpm", append([]string{"rpm", "mount"}, systemdPackages...)...)
	s.bringRPM(t, one, "packages")
	s.bringRPM(t, next, "packages/next")
	s.boot(t)
	return s
}

// bringRPM copies packages into the system, without the version, so that the test can name them.
func (s *system) bringRPM(t *testing.T, dir, into string) {
	t.Helper()
	rpms, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, "*.rpm"))
	if err != nil || len(rpms) == 0 {
		t.Fatalf("%s has no packages: %v", dir, err)
	}
	target := filepath.Join(s.root, into)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, rpm := range rpms {
		name := strings.TrimSpace(run(t, "rpm", "-qp", "--nosignature", "--qf", "%{NAME}", rpm))
		run(t, "cp", rpm, filepath.Join(target, name+".rpm"))
	}
}

// rpm runs rpm on packages of this test, files below /packages or names. If a script fails, rpm may only warn.
func (s *system) rpm(t *testing.T, verb string, packages ...string) {
	t.Helper()
	out := s.run(t, append([]string{"rpm", verb, "--nodeps"}, packages...)...)
	if strings.Contains(out, "doesn't start") || strings.Contains(out, "scriptlet failed") {
		t.Errorf("rpm %s %q:\n%s", verb, packages, out)
	}
}

func belowRPM(dir string, names ...string) []string {
	var list []string
	for _, name := range names {
		list = append(list, filepath.Join(dir, name+".rpm"))
	}
	return list
}

// TestRPMUnderSystemd is for the scripts of the rpm packages what TestUnderSystemd is for those of dpkg.
func TestRPMUnderSystemd(t *testing.T) {
	s := rpmSystem(t)
	s.rpm(t, "-i", belowRPM("/packages", crew...)...)
	if got := s.running(t); len(got) > 0 || s.state("kubelot.target") != "inactive" {
		t.Fatalf("the installation has started %v, kubelot.target is %s", got, s.state("kubelot.target"))
	}
	if out, _ := s.try("systemctl", "is-enabled", "kubelot.target"); out != "disabled\n" {
		t.Errorf("kubelot.target is %s", out)
	}
	s.put(t, "/var/lib/kubelet/config.yaml", config)
	s.put(t, "/etc/default/kubelot", "KUBELOT_ARGS=--config=/var/lib/kubelet/config.yaml\n")
	s.run(t, "systemctl", "enable", "--now", "kubelot.target")
	before := s.awaitCrew(t, daemons)

	s.rpm(t, "-U", "/packages/next/kubelot-lease.rpm")
	after := s.awaitCrew(t, daemons)
	for name := range after {
		if restarted := before[name] != after[name]; restarted != (name == "kubelot-lease") {
			t.Errorf("with a new version of kubelot-lease, %s is restarted: %v", name, restarted)
		}
	}

	// A daemon that comes back to a crew that runs joins it.
	s.rpm(t, "-e", "kubelot-gc")
	s.awaitCrew(t, daemons-1)
	s.rpm(t, "-i", "/packages/kubelot-gc.rpm")
	again := s.awaitCrew(t, daemons)
	if again["kubelot-pleg"] != after["kubelot-pleg"] {
		t.Error("another daemon was restarted")
	}

	// On a node with a configuration kubelet.service takes the kubelet's place.
	s.rpm(t, "-i", "/packages/kubelot-kubelet.rpm")
	s.run(t, "systemctl", "is-enabled", "kubelet")
	s.awaitCrew(t, daemons)
	s.rpm(t, "-e", "kubelot-kubelet")
	if s.has("/etc/systemd/system/multi-user.target.wants/kubelet.service") || s.has("/var/lib/kubelot/removed-kubelet") {
		t.Error("after its removal the kubelet is enabled, or the mark of its installation is there")
	}

	s.rpm(t, "-e", crew...)
	if got := s.running(t); len(got) > 0 || s.state("kubelot.target") != "inactive" {
		t.Errorf("after the removal there run %v, kubelot.target is %s", got, s.state("kubelot.target"))
	}
	left := s.run(t, "find", "/usr", "/etc/systemd", "-name", "kubelot*")
	if left != "" {
		t.Errorf("after the removal there are\n%s", left)
	}
}
