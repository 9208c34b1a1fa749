package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/deploy"
)

// Each part of the deployment and each program is in exactly one package.
func TestEveryPartIsPacked(t *testing.T) {
	all, err := list("1.2.3", "1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	parts, programs := map[string]int{}, map[string]int{}
	for _, p := range all {
		if p.part != "" {
			parts[p.part]++
		}
		for _, program := range p.programs {
			programs[program]++
			dir := filepath.Join("../..", moduleOf(program), "cmd", program)
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("the source of %s: %v", program, err)
			}
		}
	}
	files, err := deploy.Files("/usr")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if parts[file.Part] != 1 {
			t.Errorf("%s is in %d packages", file.Path, parts[file.Part])
		}
	}
	daemons, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range daemons {
		if programs["kubelot-"+name] != 1 {
			t.Errorf("kubelot-%s is in %d packages", name, programs["kubelot-"+name])
		}
		i := slices.IndexFunc(all, func(p *pack) bool { return p.name == "kubelot-"+name })
		if all[i].unit != "kubelot-"+name+".service" {
			t.Errorf("the package of %s restarts %q", name, all[i].unit)
		}
	}
}

// Every maintainer script, of both formats, is something that a shell can read, and has no placeholder left.
func TestScripts(t *testing.T) {
	all, err := list("1.2.3", "1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{options: &options{time: time.Unix(1, 0)}, dir: t.TempDir()}
	count := 0
	for _, p := range all {
		for _, format := range []string{"deb", "rpm"} {
			hooks, after, err := s.scripts(p, format)
			if err != nil {
				t.Fatal(err)
			}
			if (after != "") != (format == "rpm" && p.kind == "kubelet") {
				t.Errorf("%s as %s has the script %q for the end of a transaction", p.name, format, after)
			}
			for _, file := range []string{hooks.PostInstall, hooks.PreRemove, hooks.PostRemove, after} {
				if file == "" {
					continue
				}
				count++
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(string(text), "#!/bin/sh\n") || strings.Contains(string(text), "{{") {
					t.Errorf("%s:\n%s", file, text)
				}
				if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", file, err, out)
				}
			}
		}
	}
	for format, starts := range map[string]string{"deb": "postinst", "rpm": "posttrans"} {
		text, err := os.ReadFile(filepath.Join(s.dir, "files/kubelot-kubelet."+format+"."+starts))
		if err != nil || !strings.Contains(string(text), "systemctl --no-block start kubelet.service") {
			t.Errorf("the %s of %s starts nothing: %v\n%s", starts, format, err, text)
		}
	}
	if count < 4*len(summaries) {
		t.Errorf("there are %d scripts only", count)
	}
}

// A removal disables kubelet.service. Installed again, the package enables it again, also if kubeadm reset has emptied
// the kubelet's directory meanwhile.
func TestTheKubeletIsEnabledAgain(t *testing.T) {
	all, err := list("1.2.3", "1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{options: &options{time: time.Unix(1, 0)}, dir: t.TempDir()}
	i := slices.IndexFunc(all, func(p *pack) bool { return p.kind == "kubelet" })
	hooks, _, err := s.scripts(all[i], "deb")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	said := filepath.Join(root, "said")
	systemctl := []byte("#!/bin/sh\necho \"$*\" >>" + said + "\n")
	err = errors.Join(os.WriteFile(filepath.Join(root, "systemctl"), systemctl, 0o755),
		os.MkdirAll(filepath.Join(root, "lib/kubelet/pki"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	// run is a script as dpkg runs it, on a system that isn't booted; it returns what systemctl is told.
	run := func(script string, args ...string) string {
		t.Helper()
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.NewReplacer("/var/lib/", root+"/lib/", "/run/systemd/system", root+"/none").Replace(string(text))
		cmd := exec.Command("sh", append([]string{"-c", body, "script"}, args...)...)
		cmd.Env = []string{"PATH=" + root + ":/usr/bin:/bin"}
		_ = os.Remove(said)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		told, _ := os.ReadFile(said)
		return string(told)
	}
	const preset = "--quiet preset kubelet.service\n"
	if told := run(hooks.PostInstall, "configure", ""); told != preset {
		t.Errorf("an installation tells systemctl %q", told)
	}
	run(hooks.PreRemove, "remove")
	// kubeadm reset
	if err := os.RemoveAll(filepath.Join(root, "lib/kubelet")); err != nil {
		t.Fatal(err)
	}
	if told := run(hooks.PostInstall, "configure", "1.2.3"); told != preset {
		t.Errorf("an installation after a removal tells systemctl %q", told)
	}
	if told := run(hooks.PostInstall, "configure", "1.2.3"); told != "" {
		t.Errorf("an upgrade tells systemctl %q", told)
	}
	run(hooks.PreRemove, "remove")
	run(hooks.PostRemove, "purge")
	if _, err := os.Stat(filepath.Join(root, "lib/kubelot")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a purge leaves the mark: %v", err)
	}
}
