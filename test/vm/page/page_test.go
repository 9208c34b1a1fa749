package page

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const text = "# A page\n\n## First\n\n```sh\none\n```\n\nWords, and what isn't a command:\n\n```yaml\na: b\n```\n\n" +
	"```sh\ntwo <<'E'\n## no heading\nE\n```\n\n## Second\n\n```sh\nthree\n```\n"

func TestCommands(t *testing.T) {
	for heading, want := range map[string][]string{
		"First":  {"one\n", "two <<'E'\n## no heading\nE\n"},
		"Second": {"three\n"},
	} {
		if got, err := commands(text, heading); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", heading, got, err, want)
		}
	}
	for heading, text := range map[string]string{"Third": text, "A": "## A\n```sh\nno end\n"} {
		if got, err := commands(text, heading); err == nil {
			t.Errorf("section %s of %q: %q and no error", heading, text, got)
		}
	}
}

func TestFill(t *testing.T) {
	got, err := Fill("join ADDRESS --token TOKEN\n", map[string]string{"ADDRESS": "1.2.3.4", "TOKEN": "t"})
	if err != nil || got != "join 1.2.3.4 --token t\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Fill("join", map[string]string{"TOKEN": "t"}); err == nil || !strings.Contains(err.Error(), "TOKEN") {
		t.Errorf("nothing to fill in: %v", err)
	}
}

// No cluster brings a network to a box, so the page has one.
func TestTheBoxHasANetwork(t *testing.T) {
	got, err := Commands("../../../docs/install.md", "A standalone box in three commands")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(got[0], ">/etc/cni/net.d/10-pods.conflist <<'JSON'\n")
	conflist, _, ends := strings.Cut(rest, "\nJSON\n")
	if !found || !ends || !json.Valid([]byte(conflist)) {
		t.Errorf("the first command writes no network configuration: %s", got[0])
	}
}

// The page says in its headings how many commands there are.
func TestInstallPage(t *testing.T) {
	for heading, want := range map[string]int{
		"A kubeadm node in five commands": 5, "A standalone box in three commands": 3,
	} {
		got, err := Commands("../../../docs/install.md", heading)
		if err != nil || len(got) != want {
			t.Errorf("%s: %q, %v", heading, got, err)
		}
	}
}
