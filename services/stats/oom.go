package stats

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/stats/internal/kmsg"
)

// maxOOMKills bounds how many containers' kills are remembered, those of the containers whose first kill is the latest.
const maxOOMKills = 1000

// oomKills counts the processes that the kernel killed, by container ID.
type oomKills struct {
	mu    sync.Mutex
	kills map[string]uint64
	// order are the IDs by the first kill.
	order []string
}

func newOOMKills() *oomKills { return &oomKills{kills: map[string]uint64{}} }

// add counts a kill. The container is that of the process or, where it had left its cgroup, the one whose limit it was.
func (o *oomKills) add(k kmsg.Kill) {
	id, ok := cgroupname.ContainerID(k.Cgroup)
	if !ok {
		if id, ok = cgroupname.ContainerID(k.LimitedCgroup); !ok {
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kills[id]++; o.kills[id] > 1 {
		return
	}
	if o.order = append(o.order, id); len(o.order) > maxOOMKills {
		delete(o.kills, o.order[0])
		o.order = o.order[1:]
	}
}

// counts are the kills by container ID.
func (o *oomKills) counts() map[string]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.kills)
}

// followOOM reports kills until ctx ends. A log that can't be read is a problem of the daemon's health and of nothing
// else.
func (s *Service) followOOM(ctx context.Context) {
	err := s.kills(ctx, func(k kmsg.Kill) {
		s.ooms.add(k)
		if k.Earlier {
			return // it was reported when it happened
		}
		s.env.Log.Info("the kernel killed a process because memory ran out", "process", k.Process, "pid", k.PID,
			"constraint", k.Constraint, "cgroup", k.Cgroup)
		if !k.System() {
			return
		}
		s.answers.report.oomKills.Inc()
		s.loop.Do(ctx, func() { s.env.Events.Record(systemOOM(s.env.Config.NodeName, k)) })
	})
	if err != nil {
		s.answers.report.problems.Set("out-of-memory kills", fmt.Errorf("%w: let this daemon read it; until then kills of "+
			"the system are not reported", err))
	}
}

// systemOOM is the kubelet's Event of a kill because the whole machine ran out of memory.
func systemOOM(node string, k kmsg.Kill) topic.Event {
	message := "System OOM encountered"
	if k.Process != "" && k.PID != 0 {
		message = fmt.Sprintf("%s, victim process: %s, pid: %d", message, k.Process, k.PID)
	}
	return topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: node, UID: node},
		Type: corev1.EventTypeWarning, Reason: "SystemOOM", Message: message,
	}
}
