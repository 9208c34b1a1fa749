package source

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Set is everything one source wants on this node. Sources deliver whole sets, never differences.
type Set struct {
	Source topic.Source
	// Pods are the source's pods, in the order in which the source has them. Nobody may change them:
	// a source hands out the same objects again while they stay the same.
	Pods []*corev1.Pod
	// Err says why the source could not be read. Pods mean nothing then: the last set stays valid.
	Err error
}

// Source reads one place that pods come from.
type Source interface {
	// Name is the source's name.
	Name() topic.Source
	// Run delivers sets on out until ctx ends. It leaves no goroutine behind.
	Run(ctx context.Context, out chan<- Set) error
}

// Problem is something about a manifest that an operator must hear of.
// It is reported once when it appears, not each time the manifest is read.
type Problem struct {
	Source topic.Source
	// Where is the file or the URL.
	Where string
	// Message says what is wrong, on which object, and what to do.
	Message string
	// Warning is true when the manifest is used nevertheless.
	Warning bool
	// Solved is true when an earlier problem of the same place is gone; Message is then empty.
	Solved bool
}

// problems remembers what was reported, so that it is reported once.
type problems struct {
	source topic.Source
	report func(Problem)
	known  map[string]string
}

func newProblems(source topic.Source, report func(Problem)) *problems {
	if report == nil {
		report = func(Problem) {}
	}
	return &problems{source: source, report: report, known: map[string]string{}}
}

// set states what is wrong with a place now; an empty message: nothing is.
func (p *problems) set(where, message string, warning bool) {
	if p.known[where] == message {
		return
	}
	if message == "" {
		delete(p.known, where)
		p.report(Problem{Source: p.source, Where: where, Solved: true})
		return
	}
	p.known[where] = message
	p.report(Problem{Source: p.source, Where: where, Message: message, Warning: warning})
}

// send delivers a set unless ctx ends first.
func send(ctx context.Context, out chan<- Set, s Set) {
	select {
	case out <- s:
	case <-ctx.Done():
	}
}
