package gc

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// Who has most processes is evicted, whatever its name.
func TestPIDPressure(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.config.Kubelet.EvictionHard["pid.available"] = "100"
		b.ready()
		b.pod("a", "10Mi", topic.Syncing)
		b.pod("bomb", "10Mi", topic.Syncing)
		b.usage, b.tasks = map[string]int64{"a": mib, "bomb": mib}, map[string]int64{"a": 2, "bomb": 5000}
		b.pids = 50
		b.run(func() {
			b.after(2 * time.Second)
			b.want("evictions", b.evictions(), "0s bomb grace 1 TerminationByKubelet")
			if !b.pressure().PID {
				t.Errorf("pressure %+v", b.pressure())
			}
		})
	})
}
