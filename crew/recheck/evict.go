package recheck

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc"
)

// figures are the threshold and the figures that the reason of an eviction begins with.
var figures = regexp.MustCompile(`^((?:hard|soft) [A-Za-z.]+<[0-9.A-Za-z%]+): (\S+) available of (\S+);`)

// checkEvictions judges the evictions for thresholds: that the threshold is met by the figures that were read, and that
// the pod is one that may be evicted.
func (c gcCheck) checkEvictions() {
	evictions := c.core("evict", "whether a threshold is met, and whether the pod may be evicted for it")
	settings, known := c.evictionSettings()
	judged := false
	for _, d := range c.gc {
		if d.Action != topic.ActionEvict || d.Pod == nil {
			continue
		}
		parts := figures.FindStringSubmatch(d.Reason)
		p := c.pods[d.Pod.UID]
		switch {
		case parts == nil:
			evictions.Unjudged["it is for a limit of the pod's own, and its usage isn't on the bus"]++
			continue
		case !known:
			evictions.Unjudged["the recording has no settings of the node, and so no thresholds"]++
			continue
		case p == nil || len(p.updates) == 0:
			evictions.Unjudged["the pod isn't in the recording"]++
			continue
		}
		judged = true
		if now := c.evicts(settings, parts, p, d); now != "" {
			c.differs(evictions, Difference{At: d.At, Object: p.String(), Recorded: d.Reason, Now: now})
			continue
		}
		evictions.Same++
	}
	if judged {
		c.Notes = append(c.Notes, "which pod is evicted first isn't judged: the usage of the others isn't on the bus")
	}
}

// evicts says why this version would not evict the pod; empty if it would.
func (c gcCheck) evicts(s gc.EvictionSettings, parts []string, p *pod, d topic.Decision) string {
	available, errA := resource.ParseQuantity(parts[2])
	capacity, errC := resource.ParseQuantity(parts[3])
	if errA != nil || errC != nil {
		return "the figures can't be read"
	}
	met, err := c.cores.Threshold(s, parts[1], available.Value(), capacity.Value())
	switch u, ok := p.updates.last(d.At); {
	case err != nil:
		return err.Error()
	case !met:
		return fmt.Sprintf("the threshold %s isn't met by %s", parts[1], parts[2])
	case ok && u.Pod != nil && c.cores.Spared(u):
		return "the pod is never evicted"
	}
	return ""
}

// evictionSettings are the node's; not known in older recordings.
func (c gcCheck) evictionSettings() (s gc.EvictionSettings, known bool) {
	if _, known = c.header.Settings["evictionHard"]; !known {
		return s, false
	}
	for name, into := range map[string]*map[string]string{
		"evictionHard": &s.Hard, "evictionSoft": &s.Soft, "evictionSoftGracePeriod": &s.SoftGrace,
		"evictionMinimumReclaim": &s.Reclaim,
	} {
		data, err := json.Marshal(c.header.Settings[name])
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			c.Notes = append(c.Notes, fmt.Sprintf("the setting %s of the recording can't be read: %v", name, err))
		}
	}
	enforced, _ := c.header.Settings["enforceNodeAllocatable"].([]any)
	s.EnforcePods = slices.ContainsFunc(enforced, func(v any) bool { return strings.EqualFold(fmt.Sprint(v), "pods") })
	return s, true
}
