package recheck

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// checkSources judges the lists of wanted pods: the recorded pods of a list, delivered by their sources, must give the
// list without the others. What the sources delivered besides isn't on the bus.
func (c *check) checkSources() {
	lists := c.core("sources", "which pods are wanted, by what their sources deliver together")
	for _, e := range c.sources {
		switch {
		case e.gone || e.retained || len(e.value.Pods) == 0:
			continue
		case !e.value.Ready:
			lists.Unjudged["not all sources had delivered"]++
			continue
		}
		delivered, was := c.delivered(e)
		if len(was) == 0 {
			lists.Unjudged["no wanted pod is in the recording"]++
			continue
		}
		now := c.cores.Wanted(delivered)
		if slices.Sort(now); slices.Equal(now, was) {
			lists.Same++
			continue
		}
		c.differs(lists, Difference{
			At: e.at, Object: "pod.sources", Recorded: c.names(was), Now: c.names(now),
		})
	}
}

// delivered are the pods of a list by their sources, and their UIDs. Those that were refused at once, or that aren't in
// the recording, are left out.
func (c *check) delivered(e entry[topic.Sources]) (delivered map[topic.Source][]*corev1.Pod, uids []string) {
	delivered = map[topic.Source][]*corev1.Pod{}
	for _, uid := range e.value.Pods {
		p := c.pods[uid]
		if p == nil {
			continue
		}
		updates := p.updates.during(e.at, e.at.Add(settled))
		if len(updates) == 0 || updates[0].Pod == nil {
			continue
		}
		u := updates[0]
		uids = append(uids, uid)
		delivered[u.Source] = append(delivered[u.Source], u.Pod)
	}
	slices.Sort(uids)
	return delivered, uids
}

// names are the pods as a person knows them.
func (c *check) names(uids []string) string {
	var names []string
	for _, uid := range uids {
		name := uid
		if p := c.pods[uid]; p != nil {
			name = p.String()
		}
		names = append(names, name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
