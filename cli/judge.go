package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

// judge turns what the daemons say of themselves into findings.
func judge(healths map[string]topic.DaemonHealth, now time.Time) []finding {
	var findings []finding
	for _, name := range slices.Sorted(maps.Keys(healths)) {
		h := healths[name]
		findings = append(findings, finding{
			name:    name,
			detail:  fmt.Sprintf("healthy for %s, %s, pid %d", now.Sub(h.Since).Round(time.Second), h.Version, h.PID),
			problem: health.Problem(h, now),
			advice:  health.Advice(name),
		})
	}
	return findings
}
