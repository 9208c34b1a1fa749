package lease

import (
	"strings"
	"sync"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// joinedHealth makes the daemon's health of what its parts say of theirs: one that is well doesn't hide that another
// isn't.
type joinedHealth struct {
	whole daemon.HealthReporter

	mu    sync.Mutex
	parts []*partHealth
}

// partHealth is the health of one part.
type partHealth struct {
	of      *joinedHealth
	state   topic.HealthState
	message string
}

// part is one more part, which is healthy until it says otherwise.
func (j *joinedHealth) part() *partHealth {
	p := &partHealth{of: j, state: topic.Healthy}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parts = append(j.parts, p)
	return p
}

// Set implements daemon.HealthReporter.
func (p *partHealth) Set(state topic.HealthState, message string) {
	j := p.of
	j.mu.Lock()
	defer j.mu.Unlock()
	p.state, p.message = state, message
	state = topic.Healthy
	for _, part := range j.parts {
		if part.state != topic.Healthy {
			state = topic.Degraded
		}
	}
	var texts []string
	for _, part := range j.parts {
		if part.message != "" && (part.state == topic.Healthy) == (state == topic.Healthy) {
			texts = append(texts, part.message)
		}
	}
	j.whole.Set(state, strings.Join(texts, "; "))
}
