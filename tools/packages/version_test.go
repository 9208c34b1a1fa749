package main

import (
	"os/exec"
	"testing"
)

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v0.2.0":                      "0.2.0",
		"v0.2.0-5-g1a2b3c4":           "0.2.0+5.g1a2b3c4",
		"v0.2.0-5-g1a2b3c4-dirty":     "0.2.0+5.g1a2b3c4.dirty",
		"v0.2.0-dirty":                "0.2.0+0.dirty",
		"1a2b3c4":                     "0.0.0+0.g1a2b3c4",
		"devel":                       "0.0.0+0.gdevel",
		"":                            "",
		"v0.2":                        "",
		"v0.2.0-rc1; rm -rf /":        "",
		"0.2.0":                       "",
		"v0.2.0-5-g1a2b3c4-something": "",
	} {
		got, err := packageVersion(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q becomes %q, %v, want %q", version, got, err, want)
		}
	}
}

// dpkg orders them as git does.
func TestOrder(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("there is no dpkg here")
	}
	order := []string{"1a2b3c4", "v0.1.0", "v0.1.0-2-g1a2b3c4", "v0.1.0-10-g0a2b3c4", "v0.1.1", "v0.10.0"}
	for i := 1; i < len(order); i++ {
		before, err := packageVersion(order[i-1])
		if err != nil {
			t.Fatal(err)
		}
		after, err := packageVersion(order[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Command("dpkg", "--compare-versions", before, "lt", after).Run(); err != nil {
			t.Errorf("%s isn't before %s", before, after)
		}
	}
}
