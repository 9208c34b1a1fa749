package bustest

import "kubelot.dev/bus"

// rights are one daemon's, as subject patterns.
type rights struct {
	publish, read, serve, call []string
}

func rightsOf(contracts []bus.Contract) map[string]rights {
	shared := map[string]bool{}
	for _, c := range contracts {
		for _, t := range append(append([]bus.Topic{}, c.Writes...), c.Reads...) {
			if t.PerDaemon() {
				shared[t.Name()] = true
			}
		}
	}
	all := map[string]rights{}
	for _, c := range contracts {
		r := rights{serve: filters(c.Serves), call: filters(c.Calls), read: filters(c.Reads)}
		for _, t := range c.Writes {
			if !t.PerDaemon() {
				r.publish = append(r.publish, bus.Filter(t))
			}
		}
		for name := range shared {
			r.publish = append(r.publish, name+"."+c.Daemon)
		}
		r.read = append(r.read, r.publish...) // what a daemon writes it may read again in its next life
		all[c.Daemon] = r
	}
	return all
}

func filters(topics []bus.Topic) []string {
	var list []string
	for _, t := range topics {
		list = append(list, bus.Filter(t))
	}
	return list
}

// mayLocked reports whether the daemon may do something; pick chooses which of its rights is asked for.
func (b *Bus) mayLocked(daemon string, pick func(rights) []string, subjects ...string) bool {
	if b.rights == nil {
		return true
	}
	allowed := pick(b.rights[daemon])
	for _, subject := range subjects {
		// A reader's filter is itself a pattern. It is covered where each of its tokens is: "*" in the
		// filter needs "*" in the right, and ">" is covered by nothing.
		if !matchesAny(allowed, subject) {
			return false
		}
	}
	return true
}

func publishing(r rights) []string { return r.publish }
func reading(r rights) []string    { return r.read }
func serving(r rights) []string    { return r.serve }
func calling(r rights) []string    { return r.call }
