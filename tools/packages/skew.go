package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// askMore are, by the release, the daemons that ask more of the bus today than that release's bus allows: topics that
// it doesn't know, or that were others' alone. So the bus goes first, as kubelot upgrade has it. A test finds them.
var askMore = map[string][]string{
	"0.1.0": {"api", "gc", "lease", "podsync", "resource", "stats", "status", "volume"},
}

// oldestFor is the oldest version of the bus and of what all share that a daemon's package works with: those of the
// previous release, unless the daemon asks more of them. It is empty if there is no such release.
func oldestFor(daemon, previous string) string {
	if slices.Contains(askMore[previous], daemon) {
		return previous + "+1" // what is built of the first commit after it
	}
	return previous
}

// atLeast are relations to packages of this version or a later one, or of any if it is empty.
func atLeast(version string, names ...string) []relation {
	if version == "" {
		return both(names...)
	}
	var all []relation
	for _, name := range names {
		all = append(all, relation{name + " (>= " + version + ")", name + " >= " + version})
	}
	return all
}

// previousRelease is the newest release before a version, as packages have it, by deploy/releases.txt of the source.
// The daemons of both run side by side (docs/adr/0028). It is empty if there is none, or git has no release for the
// version.
func previousRelease(root, version string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "releases.txt"))
	if err != nil {
		return "", fmt.Errorf("find the previous release: %w", err)
	}
	return previousOf(string(text), version)
}

func previousOf(releases, version string) (string, error) {
	m := releaseVersion.FindStringSubmatch(version)
	if m == nil {
		return "", nil
	}
	at, err := numbers(m[1])
	if err != nil {
		return "", err
	}
	later := m[3] != "" || m[5] != "" // than the release that it has its name of
	var found string
	var newest []int
	for line := range strings.Lines(releases) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		r := releaseVersion.FindStringSubmatch(name)
		if r == nil || "v"+r[1] != name {
			continue
		}
		release, err := numbers(r[1])
		if err != nil {
			return "", err
		}
		order := slices.Compare(release, at)
		if (order < 0 || order == 0 && later) && slices.Compare(release, newest) > 0 {
			found, newest = r[1], release
		}
	}
	return found, nil
}

// numbers are those of a release such as 0.2.0.
func numbers(release string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("release %s: %w", release, err)
		}
		all = append(all, n)
	}
	return all, nil
}
