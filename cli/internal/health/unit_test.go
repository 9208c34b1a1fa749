package health

import (
	"strings"
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

func TestUnits(t *testing.T) {
	apart, shared := map[string]int{"gc": 7, "pleg": 8, "api": 0, "probe": 0}, map[string]int{"gc": 7, "pleg": 7}
	for advice, want := range map[string]string{
		"systemctl start kubelot-gc; see its log: journalctl -u kubelot-gc": "systemctl restart kubelot-compact; " +
			"see its log: journalctl -u kubelot-compact",
		"uptime; systemctl restart kubelot-pleg (the pods go on running)": "uptime; systemctl restart kubelot-compact " +
			"(the pods go on running)",
		"systemctl cat kubelot-stats: it needs CAP_SYSLOG":   "systemctl cat kubelot-compact: it needs CAP_SYSLOG",
		"start it: systemctl start kubelot.target":           "start it: systemctl start kubelot.target",
		"kubelot doctor; then journalctl -u containerd":      "kubelot doctor; then journalctl -u containerd",
		"see lease in this list; is kubelot-lease at work? ": "see lease in this list; is kubelot-lease at work? ",
	} {
		if got := Units(advice, shared); got != want {
			t.Errorf("in one process:\n%s\nwant\n%s", got, want)
		}
		if got := Units(advice, apart); got != advice {
			t.Errorf("apart: %s", got)
		}
	}
}

// In the compact layout no daemon has a unit of its own.
func TestCrewOfOneProcess(t *testing.T) {
	healths := crew("gc", topic.DaemonHealth{State: topic.Degraded, Message: "odd", Beat: now, PID: 7})
	for name, h := range healths {
		h.PID = 7
		healths[name] = h
	}
	text := Text(Crew(healths, nil, now), paint.Painter{})
	if !strings.Contains(text, "journalctl -u kubelot-compact") || strings.Contains(text, "kubelot-gc") {
		t.Errorf("it says:\n%s", text)
	}
}
