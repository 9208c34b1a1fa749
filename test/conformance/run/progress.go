package run

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// progress is how far the suite is, by what ginkgo has printed: a bullet for each spec that ended, and for a failed one
// a heading with the spec's name below.
type progress struct {
	total  int
	ended  int
	failed []string
}

var (
	willRun = regexp.MustCompile(`(?m)^Will run (\d+) of \d+ specs`)
	failure = regexp.MustCompile(`(?m)^• \[(?:FAILED|PANICKED!|TIMEDOUT|INTERRUPTED)\].*\n(.*)$`)
)

// look reads ginkgo's output. It is for people who wait, so what can't be read counts as nothing; results come from
// JUnit.
func look(path string) progress {
	output, _ := os.ReadFile(path)
	return scan(string(output))
}

func scan(output string) progress {
	var p progress
	if found := willRun.FindStringSubmatch(output); found != nil {
		p.total, _ = strconv.Atoi(found[1])
	}
	p.ended = strings.Count(output, "•")
	for _, found := range failure.FindAllStringSubmatch(output, -1) {
		p.failed = append(p.failed, found[1])
	}
	return p
}

// since is what there is to say after before was said: each failure, and a count every ten specs.
func (p progress) since(before progress) []string {
	var lines []string
	for _, spec := range p.failed[min(len(before.failed), len(p.failed)):] {
		lines = append(lines, "FAILED "+spec)
	}
	if p.ended/10 > before.ended/10 || (p.ended == p.total && before.ended != p.ended) {
		lines = append(lines, fmt.Sprintf("%d of %d specs ended, %d failed", p.ended, p.total, len(p.failed)))
	}
	return lines
}
