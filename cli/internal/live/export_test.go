package live

// Remembered counts what the model remembers.
func Remembered(m *Model) int {
	n := len(m.stated) + len(m.counts.last) + len(m.pods) + len(m.before.restarts) + len(m.snapshot.Updates) +
		len(m.snapshot.Observations) + len(m.daemons) + len(m.counts.flows)
	for _, l := range m.pods {
		n += len(l.steps) + len(l.events)
	}
	return n
}

// SecondsOf counts messages at the seconds, and returns the rate at now.
func SecondsOf(at []int64, now int64) (series []int, rate float64) {
	var c counter
	for _, second := range at {
		c.add(unix(second))
	}
	return c.series(unix(now)), c.rate(unix(now))
}
