package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"kubelot.dev/bus/topic"
)

// Problems are what keeps parts of a daemon's work from being done. They are the daemon's health: degraded with all of them named, or
// healthy. Its methods may be called from several goroutines.
type Problems struct {
	health HealthReporter
	lead   string

	mu    sync.Mutex
	texts map[string]string
}

// NewProblems makes an empty list. lead comes before the problems in the health's message.
func NewProblems(health HealthReporter, lead string) *Problems {
	return &Problems{health: health, lead: lead, texts: map[string]string{}}
}

// Set states or, with nil, takes back a problem with something. It tells whether the problem is there and was there before.
func (p *Problems) Set(what string, err error) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, before := p.texts[what]
	if err == nil {
		delete(p.texts, what)
	} else {
		p.texts[what] = fmt.Sprintf("%s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if len(p.texts) == 0 {
		p.health.Set(topic.Healthy, "")
	} else {
		p.health.Set(topic.Degraded, p.lead+strings.Join(slices.Sorted(maps.Values(p.texts)), "; "))
	}
	return before && err != nil
}
