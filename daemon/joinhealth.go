package daemon

import (
	"strings"
	"sync"

	"kubelot.dev/bus/topic"
)

// JoinedHealth makes the daemon's health of what its parts say of theirs: one that is well doesn't hide that another
// isn't.
type JoinedHealth struct {
	whole HealthReporter

	mu    sync.Mutex
	parts []*partHealth
}

// partHealth is the health of one part.
type partHealth struct {
	of      *JoinedHealth
	state   topic.HealthState
	message string
}

// JoinHealth is for a daemon of several parts.
func JoinHealth(whole HealthReporter) *JoinedHealth { return &JoinedHealth{whole: whole} }

// Part is one more part, which is healthy until it says otherwise.
func (j *JoinedHealth) Part() HealthReporter {
	p := &partHealth{of: j, state: topic.Healthy}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parts = append(j.parts, p)
	return p
}

// Set implements HealthReporter.
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
