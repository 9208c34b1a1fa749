package stats

import (
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/services/stats/internal/text"
)

// otherFamilies are tasks, out-of-memory kills and the settings of cgroups.
func otherFamilies() []family {
	return append([]family{
		{
			name: "container_last_seen", kind: text.Gauge,
			help:   "When the container was last seen, in seconds since the Unix epoch.",
			values: func(s *subject, emit emitter) { emit("", float64(s.r.At.Unix())) },
		},
		{
			name: "container_oom_events_total", kind: text.Counter,
			help:   "Processes of the container that the kernel killed because memory ran out.",
			values: func(s *subject, emit emitter) { emit("", float64(s.oomKills)) },
		},
		ofTasks("container_processes", "Processes in the container.", func(t *cgroup.Tasks) uint64 { return t.Processes }),
		ofTasks("container_threads", "Threads in the container.", func(t *cgroup.Tasks) uint64 { return t.Threads }),
		ofTasks("container_threads_max", "Threads that the container may have; 0 is no bound.",
			func(t *cgroup.Tasks) uint64 { return t.ThreadsMax }),
	}, settings()...)
}

func ofTasks(name, help string, value func(t *cgroup.Tasks) uint64) family {
	return family{name: name, kind: text.Gauge, help: help, values: func(s *subject, emit emitter) {
		if s.r.Tasks != nil {
			emit("", float64(value(s.r.Tasks)))
		}
	}}
}

// settings are what a cgroup is held to.
func settings() []family {
	spec := func(name, help string, values func(s *subject, emit emitter)) family {
		return family{name: name, kind: text.Gauge, help: help, values: values, fixed: true}
	}
	ofCPU := func(name, help string, value func(c *cgroup.CPU) uint64, always bool) family {
		return spec(name, help, func(s *subject, emit emitter) {
			if c := s.r.CPU; c != nil && (always || value(c) > 0) {
				emit("", float64(value(c)))
			}
		})
	}
	ofMemory := func(name, help string, value func(m *cgroup.Memory) uint64) family {
		return spec(name, help, func(s *subject, emit emitter) {
			if m := s.r.Memory; m != nil {
				bound := value(m)
				if bound == cgroup.Unlimited {
					bound = 0
				}
				emit("", float64(bound))
			}
		})
	}
	return []family{
		ofCPU("container_spec_cpu_period", "Period of the CPU limit in microseconds.",
			func(c *cgroup.CPU) uint64 { return c.Period }, true),
		ofCPU("container_spec_cpu_quota", "CPU time in a period, in microseconds.",
			func(c *cgroup.CPU) uint64 { return c.Quota }, false),
		ofCPU("container_spec_cpu_shares", "Weight against others when CPU time is short.",
			func(c *cgroup.CPU) uint64 { return c.Shares }, true),
		ofMemory("container_spec_memory_limit_bytes", "Memory limit in bytes; 0 is none.",
			func(m *cgroup.Memory) uint64 { return m.Limit }),
		ofMemory("container_spec_memory_reservation_limit_bytes", "Memory that reclaim leaves alone, in bytes; 0 is none.",
			func(m *cgroup.Memory) uint64 { return m.Reservation }),
		ofMemory("container_spec_memory_swap_limit_bytes",
			"Swap limit in bytes, with the memory's on cgroup version 1; 0 is none.", func(m *cgroup.Memory) uint64 {
				return m.SwapBound
			}),
		spec("container_start_time_seconds", "When the container was started, in seconds since the Unix epoch.",
			func(s *subject, emit emitter) {
				emit("", float64(s.r.Created.Unix()))
			}),
	}
}
