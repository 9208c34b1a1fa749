package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
)

func TestConditionsAreShown(t *testing.T) {
	m := newMetrics("n", 0)
	m.wanted([]corev1.NodeCondition{
		{Type: "Foreign", Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	})
	m.wanted([]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}})
	want := `# HELP kubelot_node_condition 1 for the status that each of the node's own conditions has here, whether or ` +
		`not the API server has it.
# TYPE kubelot_node_condition gauge
kubelot_node_condition{condition="Ready",status="False"} 1
kubelot_node_condition{condition="Ready",status="True"} 0
kubelot_node_condition{condition="Ready",status="Unknown"} 0
`
	if err := testutil.CollectAndCompare(m.conditions, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// A node without a lease, a standalone one, must not look like one whose lease is old.
func TestRenewalsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	told, err := renewals(registry)
	if err != nil {
		t.Fatal(err)
	}
	const name = "kubelot_lease_renewed_timestamp_seconds"
	if n, err := testutil.GatherAndCount(registry, name); n != 0 || err != nil {
		t.Errorf("%d before the first renewal, %v", n, err)
	}
	told(time.Unix(100, 5e8))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetGauge().GetValue() != 100.5 {
		t.Errorf("%v, %v", families, err)
	}
}
