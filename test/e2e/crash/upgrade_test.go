package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/deploy"
	"kubelot.dev/test/e2e/kit"
)

// newcomer is a daemon that the crew of TestUpgrade doesn't have at first.
const newcomer = "resource"

// failing is a daemon of a version that ends at once.
const failing = "#!/bin/sh\n[ \"$1\" = --version ] && echo kubelot-x version broken && exit 0\nexit 7\n"

// badDaemon is a line of doctor about a daemon that isn't well.
var badDaemon = regexp.MustCompile(`(?m)^BAD +([a-z]+): `)

// TestUpgrade moves a daemon to a version in which it fails, after somebody has moved its link there already: it goes
// back to what it ran. Then all are moved to a version that has one daemon more, which kubelot up starts.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	dir := t.TempDir()
	daemons := versions(t, own, dir)
	if err := own.StartNode(t.Context(), "kubelot", "--bin-dir="+filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	ns := own.Namespace(t)
	watchFlips(t, ns)
	ns.Apply(probedOften)
	was := kit.Status(ns.Running("probed"), "main")
	kubelot := func(command string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), own.Program("kubelot"),
			append([]string{command, "--run-dir=" + own.Node.RunDir()}, args...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	upgrade := func(args ...string) (string, error) {
		return kubelot("upgrade", append(args, "--settle=1s", "--bin-dir="+filepath.Join(dir, "bin"))...)
	}
	well := func(missing ...string) {
		t.Helper()
		kit.Eventually(t, "the crew to be well", func() error {
			out, err := kubelot("doctor")
			var bad []string
			for _, m := range badDaemon.FindAllStringSubmatch(out, -1) {
				bad = append(bad, m[1])
			}
			if !slices.Equal(bad, missing) || (err != nil) != (len(missing) > 0) {
				return fmt.Errorf("%q are bad, want %q: %w\n%s", bad, missing, err, out)
			}
			return nil
		})
		if is := kit.Status(ns.Running("probed"), "main"); is.ContainerID != was.ContainerID || is.RestartCount != 0 {
			t.Errorf("the pod's container was %+v and is %+v", was, is)
		}
	}
	if _, err := own.Daemon(newcomer); err == nil {
		t.Fatalf("kubelot-%s runs without an executable", newcomer)
	}

	link := filepath.Join(dir, "bin", "kubelot-pleg")
	if err := errors.Join(os.Remove(link), os.Symlink("../broken/kubelot-pleg", link)); err != nil {
		t.Fatal(err)
	}
	out, err := upgrade("broken", "pleg", "--patience=1m")
	if err == nil || !strings.Contains(out, "it runs ../one/kubelot-pleg again; 0 of 1 daemons run broken") {
		t.Fatalf("a version that fails: %v\n%s", err, out)
	}
	runs(t, own, "pleg", filepath.Join(dir, "one"))
	well(newcomer)

	planned(t, upgrade, len(daemons))
	if out, err = upgrade("two"); err != nil || !strings.HasPrefix(out, "kubelot-bus runs ") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range daemons {
		runs(t, own, name, filepath.Join(dir, "two"))
	}
	well()
}

// planned checks what a dry run to the version two says as JSON: all are moved, and the newcomer is started.
func planned(t *testing.T, upgrade func(...string) (string, error), count int) {
	t.Helper()
	out, err := upgrade("two", "--dry-run", "-o=json")
	var plan struct {
		DryRun bool   `json:"dryRun"`
		Error  string `json:"error"`
		Steps  []struct {
			Daemon  string `json:"daemon"`
			Outcome string `json:"outcome"`
			From    string `json:"from"`
			To      string `json:"to"`
		} `json:"steps"`
	}
	if err := errors.Join(err, json.Unmarshal([]byte(out), &plan)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range plan.Steps {
		outcome, from := "moved", "../one/kubelot-"+s.Daemon
		if s.Daemon == newcomer {
			outcome, from = "started", ""
		}
		if s.Outcome != outcome || s.From != from || s.To != "../two/kubelot-"+s.Daemon {
			t.Errorf("the plan has %+v", s)
		}
	}
	if !plan.DryRun || plan.Error != "" || len(plan.Steps) != count {
		t.Errorf("the plan for %d daemons: %s", count, out)
	}
}

// versions makes a directory as kubelot install does: bin with links to one, which lacks a daemon, two, and broken,
// whose only daemon fails.
func versions(t *testing.T, own *kit.Bed, dir string) []string {
	t.Helper()
	daemons, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "one", "two", "broken"} {
		must(os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	must(os.WriteFile(filepath.Join(dir, "broken", "kubelot-pleg"), []byte(failing), 0o755))
	for _, version := range []string{"one", "two"} {
		for _, name := range []string{"kubelot-all", "kubelot-api"} {
			must(copyExecutable(own.Program(name), filepath.Join(dir, version, name)))
		}
		for _, name := range daemons {
			if name != "api" && (version == "two" || name != newcomer) {
				must(os.Symlink("kubelot-all", filepath.Join(dir, version, "kubelot-"+name)))
			}
		}
	}
	for _, name := range daemons {
		if name != newcomer {
			must(os.Symlink("../one/kubelot-"+name, filepath.Join(dir, "bin", "kubelot-"+name)))
		}
	}
	return daemons
}

func copyExecutable(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, source)
	return errors.Join(err, file.Close())
}

// runs checks from which directory a daemon runs.
func runs(t *testing.T, own *kit.Bed, name, dir string) {
	t.Helper()
	kit.Eventually(t, name+" to run what is in "+dir, func() error {
		pid, err := own.Daemon(name)
		if err != nil {
			return err
		}
		executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || filepath.Dir(executable) != dir {
			return fmt.Errorf("it runs %s, %w", executable, err)
		}
		return nil
	})
}
