package live

import (
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// doing is what a daemon does now, in a few words.
func (m *Model) doing(name string, now time.Time) string {
	switch name {
	case "bus":
		return m.carrying(now)
	case "podsync":
		return m.working(now)
	case "pleg":
		return m.watching(now)
	case "volume":
		return m.mounting()
	case "resource":
		return m.allocating()
	case "probe":
		return m.probing()
	case "gc":
		return m.collecting(now)
	}
	return m.saying(name, now)
}

func (m *Model) carrying(now time.Time) string {
	rate, daemons := 0.0, 0
	for _, name := range Crew() {
		if r := m.counts.rateOf(name, now); r > 0 {
			rate += r
			daemons++
		}
	}
	if daemons == 0 {
		return "carries no messages"
	}
	return fmt.Sprintf("carries %.1f messages/s of %s", rate, words.Plural(daemons, "daemon"))
}

// working names the step that is under way for the longest time, or the last one that ended.
func (m *Model) working(now time.Time) string {
	var oldest, last topic.Step
	open := 0
	for uid, l := range m.pods {
		if _, here := m.snapshot.Updates[uid]; !here {
			continue
		}
		for i, step := range l.steps {
			switch {
			case step.Phase == topic.StepEnd:
				if step.At.After(last.At) {
					last = step
				}
			case supersedes(l.steps[i+1:], step) || step.At.Before(m.snapshot.Healths["podsync"].Started):
			default:
				open++
				if oldest.At.IsZero() || step.At.Before(oldest.At) {
					oldest = step
				}
			}
		}
	}
	switch {
	case open > 0:
		return fmt.Sprintf("%s, %s%s", stepText(oldest), words.Age(now.Sub(oldest.At)), others(open-1))
	case !last.At.IsZero():
		return fmt.Sprintf("idle; %s, %s ago", stepText(last), words.Age(now.Sub(last.At)))
	}
	return "idle; " + words.Plural(len(m.snapshot.Updates), "pod")
}

func stepText(s topic.Step) string {
	return strings.Join(strings.Fields(s.Name+" "+s.Container), " ") + " of " + s.Namespace + "/" + s.Ref.Name
}

func others(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

func (m *Model) watching(now time.Time) string {
	r := m.snapshot.Runtime
	if !r.Reachable && r.Name == "" {
		return m.saying("pleg", now)
	}
	text := "reads " + r.Name + " by relists"
	if r.EventStream {
		text = "follows the events of " + r.Name
	}
	if name, at := m.counts.lastOf("pleg"); name == topic.PLEGEvent.Name() {
		text += ", last " + words.Age(now.Sub(at)) + " ago"
	}
	return text
}

// mounting counts the volumes that aren't as they should be.
func (m *Model) mounting() string {
	mount, unmount, held := "", "", 0
	mounting, unmounting := 0, 0
	for uid, v := range m.snapshot.Volumes {
		update, here := m.snapshot.Updates[uid]
		ends := !here || update.Lifecycle == topic.Terminated
		pod := v.Namespace + "/" + v.Name
		switch {
		case ends && v.Phase != topic.VolumeUnmounted:
			unmounting++
			unmount = least(unmount, pod)
		case !ends && v.Phase != topic.VolumeMounted:
			mounting++
			mount = least(mount, pod)
		case v.Phase == topic.VolumeMounted:
			held += len(v.Volumes)
		}
	}
	switch {
	case mounting > 0:
		return "mounts the volumes of " + mount + others(mounting-1)
	case unmounting > 0:
		return "unmounts the volumes of " + unmount + others(unmounting-1)
	}
	return "idle; " + words.Plural(held, "volume") + " mounted"
}

// least is the name that comes first, so that a picture doesn't change with the order of a map.
func least(a, b string) string {
	if a == "" || b < a {
		return b
	}
	return a
}

func (m *Model) allocating() string {
	waiting, has, name := 0, 0, ""
	for _, a := range m.snapshot.Allocations {
		switch a.Phase {
		case topic.Allocating:
			waiting++
			name = least(name, a.Namespace+"/"+a.Name)
		case topic.Allocated:
			has++
		}
	}
	if waiting > 0 {
		return "allocates for " + name + others(waiting-1)
	}
	return "idle; " + words.Plural(has, "pod") + " with resources of their own"
}

func (m *Model) probing() string {
	failing := 0
	for _, p := range m.snapshot.Probes {
		if !p.Success {
			failing++
		}
	}
	if len(m.snapshot.Probes) == 0 {
		return "idle; no probes"
	}
	text := words.Plural(len(m.snapshot.Probes), "probe")
	if failing > 0 {
		return fmt.Sprintf("%s, %d fail", text, failing)
	}
	return text + ", all succeed"
}

func (m *Model) collecting(now time.Time) string {
	if m.snapshot.Shutdown.Active {
		return "ends the node's pods for a shutdown"
	}
	list := m.snapshot.Decisions
	if len(list) == 0 {
		return "idle"
	}
	last := list[len(list)-1]
	return fmt.Sprintf("idle; %s %s, %s ago", last.Action, words.Clip(words.OneLine(last.Object), 40),
		words.Age(now.Sub(last.At)))
}

// saying is what a daemon has last said, apart from its health.
func (m *Model) saying(name string, now time.Time) string {
	said, at := m.counts.lastOf(name)
	if said == "" {
		return "idle"
	}
	return fmt.Sprintf("idle; last said %s, %s ago", said, words.Age(now.Sub(at)))
}
