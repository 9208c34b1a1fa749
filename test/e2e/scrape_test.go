package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

// scraper may read the metrics of nodes. $NS is the test's namespace.
const scraper = `apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper}
`

// A real Prometheus (Debian's package) scrapes the node as deploy/prometheus says.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	program, err := bed.Tools.EnsurePrometheus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(scraper + "---\n" + pod("plain", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Wait("plain", "ready", kit.Ready)
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(bed.Tools.Root, "deploy/prometheus/prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	target, text := fmt.Sprintf("%s:%d", bed.Bed.Gateway, bed.Node.Port), strings.NewReplacer("/etc/prometheus/", dir+"/",
		"30s", "5s").Replace(string(config))
	for name, content := range map[string]string{
		"prometheus.yml": text, "kubelot.token": ns.Token("scraper"),
		"kubelot-nodes.yml": "[{targets: ['" + target + "']}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t, bed)
	p, err := proc.Start(proc.Spec{Name: "prometheus", Path: program, Dir: dir, Args: []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	for query, want := range map[string]int{
		`up == 1`: 4,
		`container_memory_working_set_bytes{job="kubelot-cadvisor",container="app",namespace="` + ns.Name + `"} > 0`: 1,
		`rate(pod_cpu_usage_seconds_total{namespace="` + ns.Name + `",pod="plain"}[1m])`:                             1,
		`container_network_receive_bytes_total{namespace="` + ns.Name + `",interface="eth0"}`:                        1,
		`node_memory_working_set_bytes > 0`:                  1,
		`scrape_samples_scraped{job!="kubelot-probes"} == 0`: 0, // no pod has a probe
		`kubelot_build_info{daemon="stats"} == 1`:            1,
	} {
		kit.Eventually(t, query, func() error {
			n, err := ask(t.Context(), address, query)
			if err == nil && n != want {
				err = fmt.Errorf("%d results, want %d", n, want)
			}
			return err
		})
	}
}

// freeAddress is one on loopback that nobody else takes.
func freeAddress(t *testing.T, of *kit.Bed) string {
	t.Helper()
	ports, err := of.Bed.Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// ask counts the results of a query.
func ask(ctx context.Context, address, query string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+
		url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []any `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("prometheus says %s: %s", answer.Status, answer.Error)
	}
	return len(answer.Data.Result), nil
}
