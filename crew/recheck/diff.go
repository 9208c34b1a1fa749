package recheck

// checkDiffs judges pleg's comparison of readings: a reading is published only if it differs from the one before.
func (c *check) checkDiffs() {
	diffs := c.core("diff", "whether a reading of the runtime says anything new")
	restarted := restarts(c.health["pleg"])
	c.eachPod(func(p *pod) {
		for i, e := range p.seen {
			if i == 0 || e.gone || e.retained || p.seen[i-1].gone {
				continue
			}
			fresh := false
			for _, r := range restarted {
				fresh = fresh || !e.at.Before(r.from) && !e.at.After(r.to)
			}
			switch {
			case fresh:
				diffs.Unjudged["pleg was restarted, and publishes all that it reads first"]++
			case len(c.cores.Diff(p.seen[i-1].value, e.value)) > 0:
				diffs.Same++
			default:
				c.differs(diffs, Difference{
					At: e.at, Object: p.String(), Recorded: "a change", Now: "the reading says nothing new",
				})
			}
		}
	})
}
