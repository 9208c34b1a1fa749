package shutdown

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
	"kubelot.dev/daemon/atomicfile"
)

// record is the kubelet's file of the last shutdown.
type record struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// store keeps the times of the shutdown, over a reboot.
func (s *Service) store() {
	r := record{StartTime: s.state.Started, EndTime: s.state.Ended}
	s.metrics.show(r)
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.WriteDurably(s.stateFile(), data, 0o644)
	}
	if err != nil {
		s.env.Log.Warn("the times of the shutdown can't be kept; their metrics will be 0 after the boot", "error", err)
	}
}

// load reads what store has kept, perhaps a kubelet's.
func (s *Service) load() record {
	var r record
	data, err := os.ReadFile(s.stateFile())
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.env.Log.Warn("the times of the last shutdown can't be read; their metrics are 0", "file", s.stateFile(),
			"error", err)
		return record{}
	}
	return r
}

// metrics are the kubelet's.
type metrics struct{ start, end prometheus.Gauge }

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		start: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_start_time_seconds",
			Help: "When the last graceful shutdown of the node started, in seconds since the Unix epoch; 0 for never.",
		}),
		end: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_end_time_seconds",
			Help: "When the pods of the last graceful shutdown had ended, in seconds since the Unix epoch; 0 for not yet.",
		}),
	}
	return m, daemon.RegisterMetrics(registry, "gc", m.start, m.end)
}

func (m *metrics) show(r record) {
	m.start.Set(seconds(r.StartTime))
	m.end.Set(seconds(r.EndTime))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
