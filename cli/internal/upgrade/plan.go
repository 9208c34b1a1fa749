package upgrade

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

const (
	busName = "bus"
	// compactName is the process that is all daemons.
	compactName = "compact"
)

// order is the order in which the daemons are moved.
func order(names []string, older bool) []string {
	place := func(name string) int {
		switch {
		case name != busName:
			return 0
		case older:
			return 1
		}
		return -1
	}
	sorted := slices.Sorted(slices.Values(names))
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	return sorted
}

// older reports whether the one version comes before the other. What is no version, such as a commit, counts as newer.
func older(to, from string) bool {
	a, errA := version.ParseSemantic(to)
	b, errB := version.ParseSemantic(from)
	return errA == nil && errB == nil && a.LessThan(b)
}

// healths are what the daemons say of themselves.
type healths = map[string]topic.DaemonHealth

// worse says in what way the crew is worse than it was before; empty if it isn't. A daemon that wasn't well before
// needs not be well now.
func worse(before, now healths, at time.Time) string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		problem := "says nothing"
		if h, there := now[name]; there {
			problem = health.Problem(h, at)
		}
		if problem != "" && health.Problem(before[name], before[name].Beat) == "" {
			found = append(found, fmt.Sprintf("kubelot-%s: %s", name, problem))
		}
	}
	return strings.Join(found, "; ")
}

// settled is empty when the daemon's new process has spoken and the crew is as well as before; else it says what is
// missing. pid is the process that runs the new executable.
func settled(name string, pid int, before, now healths, at time.Time) string {
	speakers := []string{name}
	switch name {
	case busName:
		speakers = nil // it has nobody to say it to before it is up
	case compactName:
		speakers = slices.Sorted(maps.Keys(before))
	}
	for _, speaker := range speakers {
		if now[speaker].PID != pid {
			return fmt.Sprintf("process %d of kubelot-%s has not said yet how it is", pid, speaker)
		}
	}
	return worse(before, now, at)
}
