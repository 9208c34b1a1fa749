package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"kubelot.dev/bus/topic"
)

func TestHealthMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		h := newHealth(nil, &Pulse{}, &unit{log: log}, log)
		m := newHealthMetrics("gc", h)
		expect := func(text string) {
			t.Helper()
			if err := testutil.CollectAndCompare(m, strings.NewReader(text), "kubelot_daemon_health",
				"kubelot_daemon_beat_timestamp_seconds"); err != nil {
				t.Error(err)
			}
		}
		const help = "# HELP kubelot_daemon_beat_timestamp_seconds Unix time of when the daemon's loop last came round; 0 " +
			"before the first time, and while it sleeps.\n# TYPE kubelot_daemon_beat_timestamp_seconds gauge\n"
		const states = "# HELP kubelot_daemon_health 1 for the state that the daemon says it is in, 0 for the others.\n" +
			"# TYPE kubelot_daemon_health gauge\n"
		expect(help + "kubelot_daemon_beat_timestamp_seconds{daemon=\"gc\"} 0\n" + states + `
kubelot_daemon_health{daemon="gc",state="degraded"} 0
kubelot_daemon_health{daemon="gc",state="healthy"} 0
kubelot_daemon_health{daemon="gc",state="stopped"} 0
kubelot_daemon_health{daemon="gc",state="unhealthy"} 0
`)
		time.Sleep(time.Second)
		h.Set(topic.Degraded, "a reason")
		// The bubble's clock begins at midnight of 2000-01-01.
		expect(help + "kubelot_daemon_beat_timestamp_seconds{daemon=\"gc\"} 9.46684801e+08\n" + states + `
kubelot_daemon_health{daemon="gc",state="degraded"} 1
kubelot_daemon_health{daemon="gc",state="healthy"} 0
kubelot_daemon_health{daemon="gc",state="stopped"} 0
kubelot_daemon_health{daemon="gc",state="unhealthy"} 0
`)
		h.Set(topic.Healthy, "")
		h.sleep("nothing needs it")
		const well = `
kubelot_daemon_health{daemon="gc",state="degraded"} 0
kubelot_daemon_health{daemon="gc",state="healthy"} 1
kubelot_daemon_health{daemon="gc",state="stopped"} 0
kubelot_daemon_health{daemon="gc",state="unhealthy"} 0
`
		expect(help + "kubelot_daemon_beat_timestamp_seconds{daemon=\"gc\"} 0\n" + states + well)
		time.Sleep(time.Second)
		h.awake()
		expect(help + "kubelot_daemon_beat_timestamp_seconds{daemon=\"gc\"} 9.46684802e+08\n" + states + well)
	})
}
