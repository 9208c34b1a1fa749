// Package fault is what is wrong with a manager's configuration. The kubelet doesn't start then; kubelot goes on with
// what is right of it, since what pods have must stay theirs.
package fault

import (
	"slices"
	"strings"
)

// Fault is one thing that is wrong.
type Fault struct {
	// Why is what is wrong, and what to change.
	Why string
	// Instead is what the manager does as long as it isn't changed.
	Instead string
	// Severe is true where pods don't get what the configuration promises: the node must not be Ready.
	Severe bool
}

// Text is all of the faults, for a person, and whether one of them is severe.
func Text(faults []Fault) (text string, severe bool) {
	texts := make([]string, 0, len(faults))
	for _, f := range faults {
		texts = append(texts, f.Why+"; "+f.Instead)
	}
	return strings.Join(texts, ". "), slices.ContainsFunc(faults, func(f Fault) bool { return f.Severe })
}
