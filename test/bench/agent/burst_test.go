package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubelot.dev/test/bench/measure"
)

// served is a Bench whose agent serves the pages one after the other, and then the last again.
func served(t *testing.T, pages ...string) *Bench {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/n1/proxy/metrics/probes" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprint(w, pages[0])
		if len(pages) > 1 {
			pages = pages[1:]
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Bench{Options: Options{Node: "n1", Client: client, Agent: self{}, IdleFor: 200 * time.Millisecond}}
}

// self is this process.
type self struct{ Agent }

func (self) PID() int { return os.Getpid() }

// spend uses CPU until /proc shows some: a process without any isn't measured.
func spend(t *testing.T) {
	t.Helper()
	for {
		if _, err := measure.CPU(os.Getpid()); err == nil || t.Context().Err() != nil {
			return
		}
	}
}

// page is what an agent serves after so many runs that succeeded and that failed.
func page(succeeded, failed string) string {
	const series = `prober_probe_total{container="app",namespace="n",pod="p",pod_uid="u",probe_type="Readiness",result=%q} %s` + "\n"
	return "# HELP prober_probe_total Runs.\n# TYPE prober_probe_total counter\n" + fmt.Sprintf(series,
		"successful", succeeded) +
		fmt.Sprintf(series, "failed", failed) + `prober_probe_duration_seconds_count{container="app"} 999` + "\n"
}

func TestProbesAreCounted(t *testing.T) {
	spend(t)
	b := served(t, page("100", "1.5e+01"), page("130", "25"))
	f := measure.Figures{}
	begin := time.Now()
	if err := b.rest(t.Context(), f, "probes.exec", true); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin).Seconds()
	if rate := f["probes.exec.rate"]; rate > 40/b.IdleFor.Seconds() || rate < 40/took {
		t.Errorf("%.1f runs a second; there were 40 in between %s and %.3f s", rate, b.IdleFor, took)
	}
	if _, measured := f["probes.exec.idle"]; !measured {
		t.Errorf("the CPU isn't measured: %v", f)
	}
}

// Pods without probes aren't asked about.
func TestNoProbes(t *testing.T) {
	spend(t)
	b := served(t, "")
	f := measure.Figures{}
	if err := b.rest(t.Context(), f, "burst.100", false); err != nil {
		t.Fatal(err)
	}
	if _, counted := f["burst.100.rate"]; counted || len(f) != 1 {
		t.Errorf("figures %v, want the CPU alone", f)
	}
}

// The quick form doesn't wait for what it doesn't judge.
func TestTheBriefFormMeasuresNoIdlePods(t *testing.T) {
	for _, c := range []struct{ brief, probed, measured bool }{
		{true, false, false}, {true, true, true}, {false, false, true},
	} {
		spend(t)
		b := served(t, page("1", "0"))
		b.Brief = c.brief
		f := measure.Figures{}
		if err := b.between(t.Context(), f, "burst.100", c.probed); err != nil {
			t.Fatal(err)
		}
		if _, idle := f["burst.100.idle"]; idle != c.measured {
			t.Errorf("brief %v, probed %v: %v", c.brief, c.probed, f)
		}
	}
}

// A page that counts nothing isn't taken for no runs.
func TestNothingCounted(t *testing.T) {
	for _, page := range []string{"", "# TYPE prober_probe_total counter\n", "prober_probe_total{} x\n"} {
		if n, err := served(t, page).probeRuns(t.Context()); err == nil {
			t.Errorf("%d runs on the page %q, want an error", int(n), strings.TrimSpace(page))
		}
	}
}
