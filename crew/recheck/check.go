package recheck

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc"
	"kubelot.dev/services/pleg"
	"kubelot.dev/services/podsync"
	"kubelot.dev/services/status"
)

// Cores are the pure functions that are asked.
type Cores struct {
	Plan   func(podsync.PlanWish, topic.PodObservation, podsync.PlanFacts, time.Time) podsync.Plan
	Status func(podsync.StatusInput) corev1.PodStatus
	Merge  func(topic.PodStatus, topic.Pod, status.Probes, corev1.PodStatus, time.Time) corev1.PodStatus
	Diff   func(old, now topic.PodObservation) []string
	Pick   func(gc.DeadInput) []topic.Decision
	Wanted func(map[topic.Source][]*corev1.Pod) []string
	// Threshold reports whether so much that is available meets a threshold, Spared whether a pod is never evicted.
	Threshold func(s gc.EvictionSettings, threshold string, available, capacity int64) (bool, error)
	Spared    func(topic.Pod) bool
}

// ownCores are the cores of this version.
func ownCores() Cores {
	return Cores{
		Plan: podsync.MakePlan, Status: podsync.ComputeStatus, Merge: status.Merge, Diff: pleg.Diff, Pick: gc.PickDead,
		Wanted: podsync.Wanted, Threshold: gc.ThresholdMet, Spared: gc.NeverEvicted,
	}
}

// check is one check of one recording.
type check struct {
	Report
	*story
	cores Cores
	// away are the periods in which podsync was being restarted.
	away []period
}

// period is a time from its begin to its end.
type period struct{ from, to time.Time }

// judge feeds a recording to the cores. The error says that it can't be read.
func judge(in io.Reader, cores Cores) (Report, error) {
	s, err := read(in)
	if err != nil {
		return Report{}, err
	}
	c := &check{story: s, cores: cores, away: restarts(s.health["podsync"])}
	c.Kubelot, c.From, c.To, c.Messages = s.header.Kubelot, s.first, s.last, s.messages
	c.Differences = []Difference{}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		if len(s.pods[uid].updates) > 0 {
			c.Pods++
		}
	}
	c.note()
	c.checkSources()
	planCheck{c}.checkPlans()
	c.checkStatuses()
	c.checkDiffs()
	c.checkMerges()
	gcCheck{c}.checkPicks()
	gcCheck{c}.checkEvictions()
	c.finish()
	return c.Report, nil
}

// note says what the recording lacks.
func (c *check) note() {
	if len(c.header.Settings) == 0 {
		c.Notes = append(c.Notes, "the recording has no settings of the node: the kubelet's defaults are assumed")
	}
	for _, name := range slices.Sorted(maps.Keys(c.unread)) {
		c.Notes = append(c.Notes, fmt.Sprintf("%d messages of %s can't be read by this version", c.unread[name], name))
	}
}

// eachPod calls do with the pods in a fixed order.
func (c *check) eachPod(do func(*pod)) {
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		do(c.pods[uid])
	}
}

// afterRestart is how long podsync takes until it knows again what it knew before a restart.
const afterRestart = 10 * time.Second

// restarts are the periods in which a daemon was away or had just begun.
func restarts(health track[topic.DaemonHealth]) []period {
	var away []period
	for i := 1; i < len(health); i++ {
		before, now := health[i-1], health[i]
		if now.gone || now.value.PID == before.value.PID && now.value.State != topic.Stopped {
			continue
		}
		from := before.at
		if before.value.State == topic.Stopped {
			from = before.at.Add(-afterRestart)
		}
		away = append(away, period{from, now.at.Add(afterRestart)})
	}
	return away
}

// differsUnlessCut notes a difference, unless the recording may have ended before it had all that was decided by:
// podsync and status may state what they know after what follows from it.
func (c *check) differsUnlessCut(of *Core, d Difference) {
	if d.At.Add(soon).After(c.last) {
		of.Unjudged["the recording ends before it must have what was decided by"]++
		return
	}
	c.differs(of, d)
}

// inAway reports whether podsync was being restarted at that time.
func (c *check) inAway(t time.Time) bool {
	return slices.ContainsFunc(c.away, func(p period) bool { return !t.Before(p.from) && !t.After(p.to) })
}
