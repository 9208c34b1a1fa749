package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"kubelot.dev/bus/topic"
)

// vital are the daemons without which a node isn't Ready or doesn't stay so, spare those without which it lacks
// something.
var (
	vital = []string{"lease", "pleg", "podsync", "probe", "status", "volume"}
	spare = []string{"api", "gc", "resource", "stats"}
)

// goneCause and hungCause are why a daemon says nothing more, by whether it has a process.
const (
	goneCause = "its process is gone without a word (killed, or out of memory), and nobody has started it again"
	hungCause = "its process %d is there, but its loop doesn't come round: it hangs, or the machine is too busy"
)

// Crew judges all daemons. running are the processes of those that run, by name.
func Crew(healths map[string]topic.DaemonHealth, running map[string]int, now time.Time) []Finding {
	names := map[string]bool{}
	for name := range healths {
		names[name] = true
	}
	for _, name := range slices.Concat(vital, spare) {
		names[name] = true
	}
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(names)) {
		h, reports := healths[name]
		if !reports {
			findings = append(findings, unheard(name, running[name]))
			continue
		}
		findings = append(findings, judge(name, h, running[name], now))
	}
	pids := Processes(healths)
	for i := range findings {
		findings[i].Advice = Units(findings[i].Advice, pids)
	}
	return findings
}

// unheard is the finding of a daemon that has never reported.
func unheard(name string, pid int) Finding {
	kind := Daemon
	if slices.Contains(spare, name) {
		kind = Degraded
	}
	if pid != 0 {
		return Bad(kind, name, "has not reported yet",
			"its process "+strconv.Itoa(pid)+" is there: it has just started, or can't reach the bus", Advice(name))
	}
	return Bad(kind, name, "has not reported since the bus started", "it isn't installed, or was never started",
		start(name))
}

func judge(name string, h topic.DaemonHealth, pid int, now time.Time) Finding {
	problem := Problem(h, now)
	if problem == "" && h.Asleep && pid == 0 {
		return Bad(Daemon, name, "slept, and is gone", goneCause, start(name))
	}
	if problem == "" {
		well := fmt.Sprintf("healthy for %s, %s, pid %d", now.Sub(h.Since).Round(time.Second), h.Version, h.PID)
		if h.Asleep {
			well += "; " + h.Message
		}
		return Good(Daemon, name, well)
	}
	switch {
	case h.State == topic.Stopped && h.Message != "":
		cause, _ := explain(name, h.Message)
		return Bad(Daemon, name, problem, "it has ended because of an error: "+cause,
			"mend that, and: systemctl restart kubelot-"+name)
	case h.State == topic.Stopped:
		return Bad(Daemon, name, problem, "it was told to stop, and nobody has started it again", start(name))
	case h.Silent(now) && pid == 0:
		return Bad(Daemon, name, problem, goneCause, start(name)+"; journalctl -k shows whether the kernel killed it")
	case h.Silent(now):
		return Bad(Daemon, name, problem, fmt.Sprintf(hungCause, pid),
			"uptime; systemctl restart kubelot-"+name+" (the pods go on running); "+Advice(name))
	}
	kind := Daemon
	if h.State == topic.Degraded {
		kind = Degraded
	}
	cause, advice := explain(name, h.Message)
	return Bad(kind, name, problem, cause, advice)
}

func start(name string) string { return "systemctl start kubelot-" + name + "; " + Advice(name) }
