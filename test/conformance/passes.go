package conformance

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const passesHead = `# The specs that the upstream kubelet passes on a node of the test bed, by their full names: a run fails if one of them
# that it asks for fails, is skipped or isn't run.
# Written by runs under the kubelet, of the whole suite or of parts: UPDATE=1 AGENT=kubelet make `

func parsePasses(text string) ([]string, error) {
	var specs []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			specs = append(specs, line)
		}
	}
	slices.Sort(specs)
	if len(specs) == 0 {
		return nil, errors.New("the list names no spec; write it with UPDATE=1 AGENT=kubelet")
	}
	if unique := slices.Compact(slices.Clone(specs)); len(unique) < len(specs) {
		return nil, fmt.Errorf("%d specs are named twice", len(specs)-len(unique))
	}
	return specs, nil
}

// WritePasses writes the list of specs as the suite's file has it.
func (s Suite) WritePasses(w io.Writer, specs []string) error {
	if len(specs) == 0 {
		return errors.New("no spec passed")
	}
	_, err := io.WriteString(w, passesHead+s.Target+"\n"+strings.Join(specs, "\n")+"\n")
	return err
}

// Passing are the specs that passed, in order.
func (r Results) Passing() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r)), func(spec string) bool { return r[spec].Outcome != Passed })
}

// Renew is the list after a run: of the specs that it ran those that passed, and of the others those that are listed.
func (r Results) Renew(listed []string) []string {
	others := slices.DeleteFunc(slices.Clone(listed), func(spec string) bool { _, ran := r[spec]; return ran })
	return slices.Sorted(slices.Values(append(others, r.Passing()...)))
}

// AddLost adds the expected specs that have no result.
func (r Results) AddLost(expected []string) {
	for _, spec := range expected {
		if _, ran := r[spec]; !ran {
			r[spec] = Result{Outcome: Lost, Message: "not run: the suite doesn't have it any more, or the flags leave it out"}
		}
	}
}

// Unlisted are the specs that passed and that the list lacks, in order.
func (r Results) Unlisted(listed []string) []string {
	return slices.DeleteFunc(r.Passing(), func(spec string) bool { return slices.Contains(listed, spec) })
}
