package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// seriesLength is how many seconds of counts are kept.
	seriesLength = 60
	// rateWindow is over how many seconds a rate is computed.
	rateWindow = 10
)

// counter counts messages by the second in which the bus stored them.
type counter struct {
	seconds [seriesLength]struct {
		at int64
		n  int
	}
	total int
	last  time.Time
}

func (c *counter) add(at time.Time) {
	c.total++
	if at.After(c.last) {
		c.last = at
	}
	second := at.Unix()
	slot := &c.seconds[((second%seriesLength)+seriesLength)%seriesLength]
	switch {
	case slot.at == second:
		slot.n++
	case slot.at < second:
		slot.at, slot.n = second, 1
	}
}

// series are the counts of the seconds before now, the oldest first. The second that is not over is left out.
func (c *counter) series(now time.Time) []int {
	counts := make([]int, seriesLength)
	for _, slot := range c.seconds {
		// A slot that was never used is of the year 1970.
		if ago := now.Unix() - slot.at; ago >= 1 && ago <= seriesLength {
			counts[seriesLength-ago] = slot.n
		}
	}
	return counts
}

func (c *counter) rate(now time.Time) float64 {
	sum := 0
	for _, n := range c.series(now)[seriesLength-rateWindow:] {
		sum += n
	}
	return float64(sum) / rateWindow
}

// flowKey is who says something, and on which topic.
type flowKey struct{ daemon, topic string }

// mark is the last message of a subject that was counted.
type mark struct {
	at   time.Time
	hash uint64
}

// counts are how many messages pass.
type counts struct {
	flows map[flowKey]*counter
	// writers is who last wrote a topic.
	writers map[string]string
	last    map[string]mark
}

func newCounts() counts {
	return counts{flows: map[flowKey]*counter{}, writers: map[string]string{}, last: map[string]mark{}}
}

// count reports whether the message is a new one. Readers get messages again after the bus was away.
func (c *counts) count(e entry) bool {
	last, now := c.last[e.Subject], mark{e.Time, hash(e.Message)}
	if e.Time.Before(last.at) || e.Time.Equal(last.at) && now.hash == last.hash {
		return false
	}
	c.last[e.Subject] = now
	key := flowKey{e.writer, e.topic.Name()}
	if c.flows[key] == nil {
		c.flows[key] = &counter{}
	}
	c.flows[key].add(e.Time)
	c.writers[key.topic] = e.writer
	return true
}

// flowsAt are all flows, by daemon and topic.
func (c *counts) flowsAt(now time.Time) []Flow {
	flows := make([]Flow, 0, len(c.flows))
	for key, counter := range c.flows {
		flows = append(flows, Flow{
			Daemon: key.daemon, Topic: key.topic, Rate: counter.rate(now), Total: counter.total, Last: counter.last,
		})
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(order(a.Daemon, b.Daemon), strings.Compare(a.Topic, b.Topic))
	})
	return flows
}

// topicsAt are all topics; keys is how many keys each has.
func (c *counts) topicsAt(now time.Time, keys map[string]int) []Topic {
	var topics []Topic
	for _, t := range kept() {
		line := Topic{
			Name: t.Name(), Doc: t.Doc(), Writer: c.writers[t.Name()], Keys: keys[t.Name()],
			Series: make([]int, seriesLength),
		}
		if t.PerDaemon() {
			line.Writer = ""
		}
		for key, counter := range c.flows {
			if key.topic != t.Name() {
				continue
			}
			for i, n := range counter.series(now) {
				line.Series[i] += n
			}
			line.Rate += counter.rate(now)
			if counter.last.After(line.Last) {
				line.Last = counter.last
			}
		}
		topics = append(topics, line)
	}
	return topics
}

// rateOf is how many messages per second a daemon writes.
func (c *counts) rateOf(daemon string, now time.Time) float64 {
	sum := 0.0
	for key, counter := range c.flows {
		if key.daemon == daemon {
			sum += counter.rate(now)
		}
	}
	return sum
}

// lastOf is a daemon's last message other than its health.
func (c *counts) lastOf(daemon string) (name string, at time.Time) {
	for key, counter := range c.flows {
		if key.daemon == daemon && key.topic != topic.Health.Name() && counter.last.After(at) {
			name, at = key.topic, counter.last
		}
	}
	return name, at
}

// keys counts the keys of each state topic.
func (m *Model) keys() map[string]int {
	n := map[string]int{}
	for subject := range m.stated {
		e, _ := understand(bus.Message{Subject: subject, Header: map[string]string{bus.HeaderTombstone: "1"}})
		if e.topic != nil {
			n[e.topic.Name()]++
		}
	}
	return n
}
