package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
)

const (
	rulesPath     = "deploy/prometheus/kubelot.rules.yml"
	dashboardPath = "deploy/grafana/kubelot.json"
)

// rare are metrics of the rules and the dashboard that a node without devices and without trouble doesn't show: the
// series come with what they count. That the daemons have them at all is seen in their executable.
var rare = map[string]string{
	"dra_operations_duration_seconds":                            "there is no claim yet",
	"dra_resource_claims_in_use":                                 "there is no DRA driver",
	"kubelet_device_plugin_registration_total":                   "there is no device plugin",
	"kubelot_device_plugin_devices":                              "there is no device plugin",
	"kubelet_evictions":                                          "nobody is evicted",
	"kubelet_server_expiration_renew_errors":                     "serverTLSBootstrap is off",
	"kubelet_certificate_manager_client_expiration_renew_errors": "rotateCertificates is off",
	"kubelet_certificate_manager_client_ttl_seconds":             "rotateCertificates is off",
	"kubelot_stats_read_errors_total":                            "all figures can be read",
}

// alertRule is an alert of the file.
type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Annotations map[string]string `json:"annotations"`
}

func readRules(t *testing.T, path string) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []alertRule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// commandsRun wants each command that an alert advises to exist with its flags.
func commandsRun(t *testing.T, own *kit.Bed, rules []alertRule) {
	t.Helper()
	for _, r := range rules {
		words := strings.Fields(r.Annotations["command"])
		out, err := exec.CommandContext(t.Context(), own.Program("kubelot"), append(words[1:], "--help")...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("Usage:\n  kubelot "+words[1])) {
			t.Errorf("%s advises %q: %v\n%s", r.Alert, words, err, out)
		}
	}
}

// metricsExist wants each metric of the rules and of the dashboard in what Prometheus has scraped, but for those that
// are rare, which must be in the daemons' executable.
func metricsExist(t *testing.T, own *kit.Bed, p *prometheus, rules []alertRule) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text, err := os.ReadFile(filepath.Join(own.Tools.Root, dashboardPath))
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{}
	for _, r := range rules {
		for _, name := range metricNames(r.Expr) {
			wanted[name] = true
		}
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range metricNames(target.Expr) {
				wanted[name] = true
			}
		}
	}
	if len(wanted) < 50 {
		t.Errorf("only %d metrics found in the rules and the dashboard", len(wanted))
	}
	var programs []byte
	for _, program := range []string{"kubelot-podsync", "kubelot-api"} { // all daemons but one share an executable
		text, err := os.ReadFile(own.Program(program))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, text...)
	}
	for name := range rare {
		if !bytes.Contains(programs, []byte(name)) {
			t.Errorf("no daemon has the metric %s", name)
		}
	}
	kit.Eventually(t, "all metrics of the rules and the dashboard", func() error {
		var missing []string
		names, err := p.names(t.Context())
		for name := range wanted {
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !slices.Contains(names, name) && rare[name] == "" && rare[base] == "" {
				missing = append(missing, name)
			}
		}
		if err == nil && len(missing) > 0 {
			slices.Sort(missing)
			err = fmt.Errorf("no scrape has %s", strings.Join(missing, ", "))
		}
		return err
	})
}

var (
	notNames    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\{[^}]*\}|\[[^\]]*\]|#[^\n]*`)
	labelList   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	identifier  = regexp.MustCompile(`[a-zA-Z_:][\w:]*(?:\s*\()?`)
	promKeyword = regexp.MustCompile(`^(?:and|or|unless|bool|offset|[Ii]nf|[Nn]a[Nn])$`)
	promNumber  = regexp.MustCompile(`\b\d[\w.]*`)
)

// metricNames are the metrics that a query is about: what is neither a function, nor a keyword, nor a label.
func metricNames(query string) []string {
	rest := notNames.ReplaceAllString(query, "")
	rest = promNumber.ReplaceAllString(labelList.ReplaceAllString(rest, ""), "")
	found := identifier.FindAllString(rest, -1)
	return slices.DeleteFunc(found, func(s string) bool { return strings.HasSuffix(s, "(") || promKeyword.MatchString(s) })
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		`up{job="a"} == 0`: "up",
		`histogram_quantile(0.95, sum by (instance, le) (rate(a_b_bucket{x="y{}"}[10m]))) > 10`: "a_b_bucket",
		"max by (a) (b_c offset 1h unless on (a) d) * 0 and on (x) up":                          "b_c d up",
		`label_replace(a_seconds, "x", "client", "", "") < 7 * 86400`:                           "a_seconds",
		`time() - (a > 0)`: "a", `sum(a) by (b) == bool 0`: "a", `rate(a[$__rate_interval]) / 1e3`: "a",
	} {
		if got := strings.Join(metricNames(query), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
