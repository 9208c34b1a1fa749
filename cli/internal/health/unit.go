package health

import (
	"regexp"

	"kubelot.dev/bus/topic"
)

// compactUnit is the systemd unit of all daemons in one process.
const compactUnit = "kubelot-compact"

// Units names the unit of the compact layout in an advice that names a daemon's own, where daemons share a process.
// pids are the daemons' processes by name.
func Units(advice string, pids map[string]int) string {
	daemons := map[int]int{}
	for _, pid := range pids {
		if pid != 0 {
			daemons[pid]++
		}
	}
	for _, n := range daemons {
		if n > 1 {
			// A daemon that has ended by itself is not started by the start of a unit that runs.
			advice = regexp.MustCompile(`systemctl start kubelot-[a-z]+`).ReplaceAllString(advice, "systemctl restart "+
				compactUnit)
			return regexp.MustCompile(`((?:journalctl -u|systemctl [a-z]+) )kubelot-[a-z]+`).ReplaceAllString(advice,
				"${1}"+compactUnit)
		}
	}
	return advice
}

// Processes are the processes that the daemons have named, by the daemons' names.
func Processes(healths map[string]topic.DaemonHealth) map[string]int {
	pids := map[string]int{}
	for name, h := range healths {
		pids[name] = h.PID
	}
	return pids
}
