package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// maxHappenings bounds the node's day.
const maxHappenings = 500

// before is what the messages said before, to see what changes. It follows the order of the history and isn't what is
// stated now.
type before struct {
	pressure *topic.Pressure
	ready    *bool
	healths  map[string]topic.DaemonHealth
	// restarts are the restart counts of containers, by pod and name.
	restarts map[string]map[string]int
}

func newBefore() before {
	return before{
		healths: map[string]topic.DaemonHealth{}, restarts: map[string]map[string]int{},
	}
}

// happen finds out whether a message is a happening of the node's day.
func (m *Model) happen(e entry) {
	for _, h := range m.before.happenings(e) {
		h.At = e.Time
		h.What = words.OneLine(h.What)
		m.happenings = appendBounded(m.happenings, h, maxHappenings)
	}
}

func (b *before) happenings(e entry) []Happening {
	switch v := e.value.(type) {
	case nil:
		if e.topic.Name() == topic.PLEGEvent.Name() {
			delete(b.restarts, e.key)
		}
	case topic.Decision:
		return evictions(v)
	case topic.Event:
		if v.Kind == "Node" && v.Reason == "SystemOOM" {
			return []Happening{{Kind: HappenedPressure, What: "out of memory: " + v.Message, Bad: true}}
		}
	case topic.Pressure:
		return b.pressures(v)
	case topic.DaemonHealth:
		return b.health(e.key, v)
	case topic.PodObservation:
		return b.containers(e.key, v)
	case corev1.Node:
		return b.node(v)
	}
	return nil
}

func evictions(d topic.Decision) []Happening {
	if d.Action != topic.ActionEvict || d.Pod == nil {
		return nil
	}
	pod := *d.Pod
	what := "evicted " + pod.Namespace + "/" + pod.Name + ": " + d.Reason
	if d.Error != "" {
		what = "could not evict " + pod.Namespace + "/" + pod.Name + ": " + d.Error
	}
	return []Happening{{Kind: HappenedEviction, Pod: &pod, What: what, Bad: true}}
}

// under are the kinds of pressure that hold.
func under(p topic.Pressure) []string {
	var kinds []string
	for _, kind := range []struct {
		holds bool
		name  string
	}{{p.Memory, "memory"}, {p.Disk, "disk"}, {p.PID, "pid"}} {
		if kind.holds {
			kinds = append(kinds, kind.name)
		}
	}
	return kinds
}

func (b *before) pressures(now topic.Pressure) []Happening {
	was := b.pressure
	b.pressure = &now
	kinds := under(now)
	switch {
	case was == nil && len(kinds) == 0, was != nil && slices.Equal(kinds, under(*was)):
		return nil
	case len(kinds) == 0:
		return []Happening{{Kind: HappenedPressure, What: "no pressure any more"}}
	}
	what := strings.Join(kinds, " and ") + " pressure"
	if now.Message != "" {
		what += ": " + now.Message
	}
	return []Happening{{Kind: HappenedPressure, What: what, Bad: true}}
}

func (b *before) health(daemon string, now topic.DaemonHealth) []Happening {
	was, known := b.healths[daemon]
	b.healths[daemon] = now
	if !known {
		return nil
	}
	var list []Happening
	if now.Started.After(was.Started) {
		list = append(list, Happening{
			Kind: HappenedDaemon, Daemon: daemon, What: "daemon " + daemon + " was started again",
		})
	}
	// A daemon that begins is degraded for a moment, until what it waits for is there.
	begins := now.State == topic.Degraded && now.Beat.Sub(now.Started) < 10*time.Second
	if now.State != was.State && !begins {
		what := "daemon " + daemon + " is " + string(now.State)
		if now.Message != "" {
			what += ": " + now.Message
		}
		list = append(list, Happening{Kind: HappenedDaemon, Daemon: daemon, What: what, Bad: now.State != topic.Healthy})
	}
	return list
}

// containers finds the containers that were started again. What was first seen of a container is no restart.
func (b *before) containers(uid string, now topic.PodObservation) []Happening {
	was := b.restarts[uid]
	counts := map[string]int{}
	var list []Happening
	for _, c := range now.Containers { // newest first
		if _, newer := counts[c.Name]; newer {
			continue
		}
		counts[c.Name] = c.RestartCount
		if before, known := was[c.Name]; known && c.RestartCount > before {
			pod := now.Ref
			pod.UID = uid
			list = append(list, Happening{
				Kind: HappenedRestart, Pod: &pod, Bad: true,
				What: fmt.Sprintf("container %s of %s/%s was started again%s", c.Name, pod.Namespace, pod.Name,
					ended(now.Containers, c)),
			})
		}
	}
	for name, n := range was { // removed and not yet made again
		if _, there := counts[name]; !there {
			counts[name] = n
		}
	}
	b.restarts[uid] = counts
	return list
}

// ended is how the container before this one ended.
func ended(all []topic.Container, now topic.Container) string {
	for _, c := range all {
		if c.Name != now.Name || c.ID == now.ID || c.State != topic.ContainerExited {
			continue
		}
		if c.Reason != "" && c.Reason != "Error" && c.Reason != "Completed" {
			return fmt.Sprintf(": it had ended with %d (%s)", c.ExitCode, c.Reason)
		}
		return fmt.Sprintf(": it had ended with %d", c.ExitCode)
	}
	return ""
}

func (b *before) node(now corev1.Node) []Happening {
	condition := conditionOf(now, corev1.NodeReady)
	if condition == nil {
		return nil
	}
	ready, was := condition.Status == corev1.ConditionTrue, b.ready
	b.ready = &ready
	if was == nil || *was == ready {
		return nil
	}
	if ready {
		return []Happening{{Kind: HappenedNodeReady, What: "the node is Ready"}}
	}
	return []Happening{{
		Kind: HappenedNodeReady, Bad: true, What: "the node isn't Ready: " + condition.Reason + ": " + condition.Message,
	}}
}
