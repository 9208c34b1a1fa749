package release

import (
	"os/exec"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	all, err := parse("f", []byte("# comment\n\nv0.1.0 "+commit+" 2026-11-23 # the first\n"+
		"v0.2.0-rc.1 "+commit+" 2026-12-01\n"))
	if err != nil || len(all) != 2 || all[0].Version != "v0.1.0" || all[1].Commit != commit {
		t.Errorf("got %v, %v", all, err)
	}
	for _, bad := range []string{
		"v0.1.0", "0.1.0 " + commit + " 2026-11-23", "v0.1.0 5167620 2026-11-23", "v0.1.0 " + commit + " yesterday",
		"v0.1.0 " + commit + " 2026-11-23 more",
	} {
		if _, err := parse("f", []byte("\n"+bad)); err == nil || !strings.Contains(err.Error(), "f:2: want") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The file in the repository can be read, its releases are in the history, and in order.
func TestReleasesOfTheRepository(t *testing.T) {
	all, err := List("../../..")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", "../../.."}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	// Of a shallow clone, and of what is no clone, nothing can be said.
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err == nil && shallow == "false" {
		for _, r := range all {
			if _, err := git("cat-file", "-e", r.Commit+"^{commit}"); err != nil {
				t.Errorf("%s is commit %s, which the repository doesn't have: %v", r.Version, r.Commit, err)
			} else if _, err := git("merge-base", "--is-ancestor", r.Commit, "HEAD"); err != nil {
				t.Errorf("%s is commit %s, which isn't in the history: %v", r.Version, r.Commit, err)
			}
		}
	}
	for i, r := range all[1:] {
		if r.Date.Before(all[i].Date) {
			t.Errorf("%s is older than %s, which comes before it", r.Version, all[i].Version)
		}
	}
}
