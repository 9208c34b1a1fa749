package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"kubelot.dev/bus/topic"
)

// Problems are what prevents parts of a daemon's work. They decide the daemon's health: it is degraded, and the message
// names all of them, or it is healthy. The methods may be called from several goroutines.
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

// Set states a problem with something or, with nil, removes it. again reports whether the problem is there and was
// there before.
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
