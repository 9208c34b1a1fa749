package deploy

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	rulesFile = "prometheus/kubelot.rules.yml"
	testsFile = "prometheus/kubelot.rules.test.yml"
)

// rules is a file of Prometheus' rules.
type rules struct {
	Groups []struct {
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alertTests is a file for promtool test rules.
type alertTests struct {
	Tests []struct {
		Alerts []struct {
			Alert    string `json:"alertname"`
			Expected []any  `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file rules
	load(t, rulesFile, &file)
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts found, and there are more", len(all))
	}
	return all
}

// Who is woken reads one sentence, and knows what to run next. test/e2e runs the commands.
func TestAlertsSayWhatToDo(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		if !strings.HasPrefix(a.Alert, "Kubelot") || seen[a.Alert] {
			t.Errorf("%q: the name is there twice, or isn't ours", a.Alert)
		}
		seen[a.Alert] = true
		if s := a.Annotations["summary"]; !strings.HasSuffix(s, ".") || !strings.Contains(s, "$labels.instance") {
			t.Errorf("%s: the summary must be a sentence that names the node: %q", a.Alert, s)
		}
		if !strings.HasPrefix(a.Annotations["command"], "kubelot ") {
			t.Errorf("%s: no command to run next", a.Alert)
		}
		if !slices.Contains([]string{"page", "ticket"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q", a.Alert, a.Labels["severity"])
		}
	}
}

// Each alert is shown to fire and to be quiet.
func TestAlertsHaveTests(t *testing.T) {
	var file alertTests
	load(t, testsFile, &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				fires[a.Alert] = true
			} else {
				quiet[a.Alert] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s: fires in a test: %t, is quiet in one: %t", a.Alert, fires[a.Alert], quiet[a.Alert])
		}
	}
}

// promtool runs them; test/e2e does so where this machine has none.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("Debian's package prometheus isn't installed")
	}
	for _, args := range [][]string{
		{"check", "rules", rulesFile},
		{"check", "config", "--syntax-only", "prometheus/prometheus.yml"},
		{"test", "rules", testsFile},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile("grafana/kubelot.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string  `json:"uid"`
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID != "kubelot" || len(dashboard.Panels) < 40 {
		t.Fatalf("dashboard %q has %d panels", dashboard.UID, len(dashboard.Panels))
	}
	return dashboard.Panels
}

// A person who sees a panel for the first time learns what it shows, in which unit, and of which nodes.
func TestPanelsAreExplained(t *testing.T) {
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range panels(t) {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("panel %q: its number or title is there twice", p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: description %q, unit %q", p.Title, p.Description, p.FieldConfig.Defaults.Unit)
		}
		for _, target := range p.Targets {
			if target.LegendFormat == "" || !selectsNode(target.Expr) {
				t.Errorf("panel %q: %s with the legend %q", p.Title, target.Expr, target.LegendFormat)
			}
		}
	}
}

// selectors are the labels by which a query chooses its series.
var selectors = regexp.MustCompile(`\{[^}]*\}`)

// selectsNode reports whether each selector of a query is for the nodes that the reader has chosen.
func selectsNode(expr string) bool {
	all := selectors.FindAllString(expr, -1)
	others := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.Contains(s, `instance=~"$node"`) })
	return len(all) > 0 && len(others) == 0
}

func TestSelectsNode(t *testing.T) {
	for expr, want := range map[string]bool{
		`a{instance=~"$node"} / b{x="y",instance=~"$node"}`: true, `a{instance=~"$node"} / b{}`: false, `a`: false,
	} {
		if got := selectsNode(expr); got != want {
			t.Errorf("%s: %t", expr, got)
		}
	}
}

// Panels that overlap are moved by Grafana, and nobody finds them where they were.
func TestPanelsDontOverlap(t *testing.T) {
	all := panels(t)
	slices.SortFunc(all, func(a, b panel) int {
		return cmp.Or(cmp.Compare(a.GridPos.Y, b.GridPos.Y), cmp.Compare(a.GridPos.X, b.GridPos.X))
	})
	for i, a := range all {
		if a.GridPos.W == 0 || a.GridPos.X+a.GridPos.W > 24 {
			t.Errorf("panel %q is at %+v", a.Title, a.GridPos)
		}
		for _, b := range all[i+1:] {
			if overlap(a, b) {
				t.Errorf("panels %q and %q overlap", a.Title, b.Title)
			}
		}
	}
}

func overlap(a, b panel) bool {
	p, q := a.GridPos, b.GridPos
	return p.X < q.X+q.W && q.X < p.X+p.W && p.Y < q.Y+q.H && q.Y < p.Y+p.H
}

func TestOverlap(t *testing.T) {
	at := func(x, y int) panel {
		var p panel
		p.GridPos.H, p.GridPos.W, p.GridPos.X, p.GridPos.Y = 8, 8, x, y
		return p
	}
	if !overlap(at(0, 0), at(7, 7)) || overlap(at(0, 0), at(8, 0)) || overlap(at(0, 0), at(0, 8)) {
		t.Error("wrong")
	}
}
