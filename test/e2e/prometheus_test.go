package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

// prometheus is a running one.
type prometheus struct{ address string }

// hurried makes what takes minutes take seconds: the time between two looks, and how long something must last. A
// machine that is busy with other tests makes fewer changes meanwhile, so fewer of them count as a lag.
func hurried(config, rules string) (string, string) {
	config = strings.Replace(config, "scrape_interval: 30s", "scrape_interval: 5s\n  evaluation_interval: 2s", 1)
	rules = regexp.MustCompile(`(?m)^( *for: )\w+$`).ReplaceAllString(rules, "${1}4s")
	return config, strings.NewReplacer("[5m]", "[20s]", "[10m]", "[20s]", "offset 15m", "offset 20s", "> 150", "> 15",
		"> 100", "> 60", "> 4 * 1024 * 1024", "> 1024 * 1024").Replace(rules)
}

// startPrometheus runs one that scrapes the bed's node as deploy/ says, with the rules in a hurry. promtool accepts
// them as they are.
func startPrometheus(t *testing.T, own *kit.Bed) *prometheus {
	t.Helper()
	program, err := own.Tools.EnsurePrometheus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deployed := filepath.Join(own.Tools.Root, "deploy/prometheus")
	for _, args := range [][]string{{"check", "rules", "kubelot.rules.yml"}, {"test", "rules", "kubelot.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = deployed
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("promtool %s: %v\n%s", args, err, out)
		}
	}
	var texts [2]string
	for i, file := range []string{"prometheus.yml", "kubelot.rules.yml"} {
		text, err := os.ReadFile(filepath.Join(deployed, file))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	config, rules := hurried(texts[0], texts[1])
	own.Kubectl(t, "create", "serviceaccount", "prometheus", "-n", "default")
	own.Kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=system:kubelet-api-admin",
		"--serviceaccount=default:prometheus")
	dir, address := t.TempDir(), freeAddress(t, own)
	for name, content := range map[string]string{
		"prometheus.yml":    strings.ReplaceAll(config, "/etc/prometheus/", dir+"/"),
		"kubelot.rules.yml": rules,
		"kubelot.token":     own.Kubectl(t, "create", "token", "prometheus", "-n", "default"),
		"kubelot-nodes.yml": fmt.Sprintf("[{targets: ['%s:%d']}]\n", own.Bed.Gateway, own.Node.Port),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := proc.Start(proc.Spec{Name: "prometheus", Path: program, Dir: dir, Args: []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	return &prometheus{address: address}
}

// get asks the HTTP API for data.
func (p *prometheus) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Error string `json:"error"`
		Data  any    `json:"data"`
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("prometheus says %s: %w", text, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("prometheus says %s", answer.Error)
	}
	return nil
}

// names are those of all metrics.
func (p *prometheus) names(ctx context.Context) (names []string, err error) {
	return names, p.get(ctx, "label/__name__/values", &names)
}

// values are those of a query, as text.
func (p *prometheus) values(ctx context.Context, query string) (values []string, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	err = p.get(ctx, "query?query="+url.QueryEscape(query), &data)
	for _, r := range data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, err
}

// fires is an error unless the alert fires, with a summary that has the text. The name may have further labels.
func (p *prometheus) fires(ctx context.Context, alert, text string) error {
	values, err := p.values(ctx, `ALERTS{alertstate="firing",alertname="`+alert+`"}`)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return fmt.Errorf("%s doesn't fire", alert)
	}
	var data struct {
		Alerts []struct {
			Labels, Annotations map[string]string
		}
	}
	if err := p.get(ctx, "alerts", &data); err != nil {
		return err
	}
	for _, a := range data.Alerts {
		if strings.HasPrefix(alert, a.Labels["alertname"]) && strings.Contains(a.Annotations["summary"], text) {
			return nil
		}
	}
	return fmt.Errorf("no alert says %q: %+v", text, data.Alerts)
}
