package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
)

// judge turns what the daemons say of themselves into findings.
func judge(healths map[string]topic.DaemonHealth, now time.Time) []finding {
	var findings []finding
	for _, name := range slices.Sorted(maps.Keys(healths)) {
		h := healths[name]
		f := finding{
			name:   name,
			detail: fmt.Sprintf("healthy for %s, %s, pid %d", now.Sub(h.Since).Round(time.Second), h.Version, h.PID),
			advice: fmt.Sprintf("see its log: journalctl -u kubelot-%s", name),
		}
		switch {
		case h.State == topic.Stopped:
			f.problem = "stopped"
		case now.Sub(h.Beat) > deaf:
			f.problem = fmt.Sprintf("says nothing since %s ago", now.Sub(h.Beat).Round(time.Second))
		case h.State != topic.Healthy:
			f.problem = string(h.State)
		}
		if f.problem != "" && h.Message != "" {
			f.problem += ": " + h.Message
		}
		findings = append(findings, f)
	}
	return findings
}
