package upgrade

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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

// kind is what happens to a daemon.
type kind int

// The kinds.
const (
	moved kind = iota // it runs, and runs the other version afterwards
	fresh             // no version that runs has it: it is started
	gone              // the other version, which is older, hasn't got it: it is stopped
	idle              // it doesn't run: its link is moved
)

// place is where in the order a daemon is moved. The bus comes first, because it knows the permissions of all others,
// and after them on the way to an older version. A daemon that is new in a version is there before the others of that
// version ask it, and goes after them. What doesn't run comes last: it is of no use if one that runs goes back.
func place(name string, k kind, older bool) int {
	switch {
	case k == idle:
		return 5
	case name == busName && older:
		return 4
	case name == busName:
		return 0
	case k == fresh:
		return 1
	case k == gone:
		return 3
	}
	return 2
}

// described is a version between releases, by git describe: how many commits it is after which release.
var described = regexp.MustCompile(`^(v\d+\.\d+\.\d+\S*?)-(\d+)-g[0-9a-f]+(-dirty)?$`)

// release splits a version into its release and the number of commits after that.
func release(text string) (*version.Version, int, error) {
	commits := 0
	if m := described.FindStringSubmatch(text); m != nil {
		var err error
		if commits, err = strconv.Atoi(m[2]); err != nil {
			return nil, 0, err
		}
		text = m[1]
	}
	v, err := version.ParseSemantic(strings.TrimSuffix(text, "-dirty"))
	return v, commits, err
}

// older reports whether the one version comes before the other. What is no version, such as a commit, counts as newer.
func older(to, from string) bool {
	a, commitsA, errA := release(to)
	b, commitsB, errB := release(from)
	if errA != nil || errB != nil {
		return false
	}
	return a.LessThan(b) || a.EqualTo(b) && commitsA < commitsB
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
	if _, was := before[name]; !was && len(speakers) > 0 && name != compactName {
		if problem := health.Problem(now[name], at); problem != "" {
			return fmt.Sprintf("kubelot-%s: %s", name, problem)
		}
	}
	return worse(before, now, at)
}
