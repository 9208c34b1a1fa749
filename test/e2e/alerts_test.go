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
	"syscall"
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
	"dra_grpc_operations_duration_seconds":                       "there is no DRA driver",
	"dra_resource_claims_in_use":                                 "there is no DRA driver",
	"kubelet_device_plugin_registration_total":                   "there is no device plugin",
	"kubelot_device_plugin_devices":                              "there is no device plugin",
	"kubelet_evictions":                                          "nobody is evicted",
	"kubelet_server_expiration_renew_errors":                     "serverTLSBootstrap is off",
	"kubelet_certificate_manager_client_expiration_renew_errors": "rotateCertificates is off",
	"kubelet_certificate_manager_client_ttl_seconds":             "rotateCertificates is off",
	"kubelot_stats_read_errors_total":                            "all figures can be read",
}

// troubles are pods that have the daemons show what they count: probes, limits, ends, and failures of each step. The
// volume of one can't be set up, again and again.
const troubles = `apiVersion: v1
kind: Pod
metadata: {name: well}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: app, image: "busybox:1.36", command: [sleep, "1000000"], resources: {limits: {cpu: 100m}},
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 60}}
---
apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  restartPolicy: Never
  containers: [{name: app, image: "busybox:1.36", command: ["false"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", resources: {requests: {cpu: "1000"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: mistaken}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [/no/such/command]}]
---
apiVersion: v1
kind: Pod
metadata: {name: boxless}
spec:
  terminationGracePeriodSeconds: 0
  runtimeClassName: none
  containers: [{name: app, image: "busybox:1.36"}]
---
apiVersion: v1
kind: Pod
metadata: {name: mapless}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", volumeMounts: [{name: map, mountPath: /map}]}]
  volumes: [{name: map, configMap: {name: none}}]
`

// noRuntime is a handler that no runtime has.
const noRuntime = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: none}
handler: none
`

// alertsFire has a real Prometheus with the rules of deploy/ scrape the crew, and breaks what the rules are for.
func alertsFire(t *testing.T, own *kit.Bed) {
	own.NotCompact(t, "one process of a daemon is stopped")
	p := startPrometheus(t, own)
	rules := readRules(t, filepath.Join(own.Tools.Root, rulesPath))
	commandsRun(t, own, rules)
	runtimeClass := filepath.Join(t.TempDir(), "class.yaml")
	if err := os.WriteFile(runtimeClass, []byte(noRuntime), 0o600); err != nil {
		t.Fatal(err)
	}
	own.Kubectl(t, "apply", "-f", runtimeClass)
	ns := own.Namespace(t)
	ns.Apply(troubles)
	ns.Wait("well", "ready", kit.Ready)
	metricsExist(t, own, p, rules)

	kit.Eventually(t, "the alert of the volume", func() error {
		return p.fires(t.Context(), `KubelotVolumesFail",operation_name="volume_mount`, "")
	})
	for _, quiet := range []string{
		"KubelotDaemonDown", "KubelotRuntimeFails", "KubelotNodeUnreachable", "KubelotNodeNotReady",
	} {
		if p.fires(t.Context(), quiet, "") == nil {
			t.Errorf("%s fires and all is well", quiet)
		}
	}
	own.Signal(t, "gc", syscall.SIGSTOP)
	kit.Eventually(t, "the alert of a daemon that is stopped", func() error {
		return p.fires(t.Context(), `KubelotDaemonDown",daemon="gc`, "The daemon gc of ")
	})
	own.Signal(t, "gc", syscall.SIGCONT)
	kit.Eventually(t, "the end of that alert", func() error {
		if p.fires(t.Context(), `KubelotDaemonDown",daemon="gc`, "") == nil {
			return fmt.Errorf("it fires still")
		}
		return nil
	})
	restartOften(t, own, p)
	own.Containerd.Stop()
	kit.Eventually(t, "the alert of the runtime", func() error { return p.fires(t.Context(), "KubelotRuntimeFails", "") })
	kit.Eventually(t, "the alert of the node", func() error {
		return p.fires(t.Context(), "KubelotNodeNotReady", "is not Ready")
	})
	if err := own.Containerd.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	own.Signal(t, "api", syscall.SIGSTOP)
	defer own.Signal(t, "api", syscall.SIGCONT)
	kit.Eventually(t, "the alert of a node that isn't there", func() error {
		return p.fires(t.Context(), "KubelotNodeUnreachable", "can't be read")
	})
}

// restartOften ends a daemon four times. Prometheus must have seen each life.
func restartOften(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	const query = `process_start_time_seconds{daemon="gc"}`
	for range 5 {
		before, err := p.values(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		own.Signal(t, "gc", syscall.SIGKILL)
		kit.Eventually(t, "the next life of gc", func() error {
			now, err := p.values(t.Context(), query)
			if err == nil && (len(now) == 0 || slices.Equal(now, before)) {
				err = fmt.Errorf("prometheus has %v still", before)
			}
			return err
		})
	}
	kit.Eventually(t, "the alert of a daemon that ends again and again", func() error {
		return p.fires(t.Context(), `KubelotDaemonRestarts",daemon="gc`, "The daemon gc of ")
	})
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
