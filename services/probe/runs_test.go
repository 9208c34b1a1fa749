package probe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
)

// Runs that take long, more than there are workers, don't keep other probes from theirs, and go on themselves when they end.
func TestMoreRunsThanWorkers(t *testing.T) {
	inBubble(t, func(b *bed) {
		const hanging = 30
		b.takes = 2 * time.Minute
		stop := b.start()
		defer stop()
		for i := range hanging {
			b.pod(fmt.Sprintf("h%d", i), 1)
		}
		b.after(hanging * time.Second)
		b.mu.Lock()
		b.takes = time.Millisecond
		b.mu.Unlock()
		b.pod("u1", 1)
		b.after(100 * time.Millisecond)
		b.wantVerdicts(bothGood)
		b.after(3 * time.Minute)
		b.taken()
		b.after(10 * time.Second)
		count := map[string]int{}
		for _, run := range b.taken() {
			count[strings.Fields(run)[0]]++
		}
		for i := range hanging {
			if n := count[fmt.Sprintf("c-h%d", i)]; n != 10 {
				t.Errorf("probe %d that has hung ran %d times in 10 s, want 10", i, n)
			}
		}
	})
}

// Two pods in succession may have the same name: the end of one takes no run of the other out of the metrics.
func TestMetricsOfPodsOfOneName(t *testing.T) {
	pages := http.NewServeMux()
	m, err := newMetrics(prometheus.NewPedanticRegistry(), pages)
	if err != nil {
		t.Fatal(err)
	}
	made := func(uid string) *probe {
		return &probe{target: target{slot: slot{"app", topic.ProbeReadiness}}, ref: topic.Ref{Namespace: "default", Name: "db-0", UID: uid}}
	}
	old, replacement := made("u1"), made("u2")
	m.ended(old, true, time.Second)
	m.ended(replacement, true, time.Second)
	m.gone(old.ref)
	for range 3 {
		m.ended(replacement, true, time.Second)
		m.ended(replacement, false, time.Second)
	}
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, page, nil))
	for _, want := range []string{
		`prober_probe_duration_seconds_count{container="app",namespace="default",pod="db-0",probe_type="Readiness"} 3`,
		`pod_uid="u2",probe_type="Readiness",result="successful"} 4`, `pod_uid="u2",probe_type="Readiness",result="failed"} 3`,
	} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, answer.Body)
		}
	}
	if strings.Contains(answer.Body.String(), `pod_uid="u1"`) {
		t.Errorf("the pod that is gone has series:\n%s", answer.Body)
	}
}
