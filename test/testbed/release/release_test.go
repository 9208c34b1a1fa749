package release

import (
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

// The file in the repository can be read, and its releases are in order.
func TestReleasesOfTheRepository(t *testing.T) {
	all, err := List("../../..")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for i, r := range all[1:] {
		if r.Date.Before(all[i].Date) {
			t.Errorf("%s is older than %s, which comes before it", r.Version, all[i].Version)
		}
	}
}
