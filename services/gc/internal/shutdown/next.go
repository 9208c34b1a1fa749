package shutdown

import (
	"cmp"
	"slices"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
)

// againAfter is how long podsync may take to begin the end of a pod before it is asked again.
const againAfter = 2 * time.Second

// Groups are the configured groups in the order in which they end: by priority, or those of critical and of other pods.
// There are none if nothing is configured.
func Groups(k *kubeletv1beta1.KubeletConfiguration) []topic.ShutdownGroup {
	var groups []topic.ShutdownGroup
	for _, g := range k.ShutdownGracePeriodByPodPriority {
		groups = append(groups, topic.ShutdownGroup{
			Priority: g.Priority, GracePeriodSeconds: g.ShutdownGracePeriodSeconds,
		})
	}
	whole, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	if len(groups) == 0 && whole > 0 && critical >= 0 && critical <= whole {
		groups = topic.ShutdownGroups(whole, critical)
	}
	return sorted(groups)
}

func sorted(groups []topic.ShutdownGroup) []topic.ShutdownGroup {
	slices.SortStableFunc(groups, func(a, b topic.ShutdownGroup) int { return cmp.Compare(a.Priority, b.Priority) })
	return groups
}

// Total is what all groups have together.
func Total(groups []topic.ShutdownGroup) time.Duration {
	var sum int64
	for _, g := range groups {
		sum += g.GracePeriodSeconds
	}
	return time.Duration(sum) * time.Second
}

// groupOf is the index of the group that a pod of that priority belongs to: the last one that is no more important than
// the pod, or else the first.
func groupOf(groups []topic.ShutdownGroup, priority int32) int {
	found := 0
	for i, g := range groups {
		if g.Priority <= priority {
			found = i
		}
	}
	return found
}

// Pod is what is to be known of a pod.
type Pod struct {
	topic.Ref
	Priority int32
	// Grace is the pod's own grace period in seconds; nil if it has none.
	Grace *int64
	// Begun is true once podsync ends the pod, Over once nothing of it runs, its volumes are unmounted and its cgroup is
	// gone.
	Begun, Over bool
	// Asked is when podsync was last asked to end it; zero if it was not, or only an earlier process of podsync was.
	Asked time.Time
}

// Progress is how far a shutdown is.
type Progress struct {
	// Group is the index of the group that ends now, or the number of groups. Since is when its time began.
	Group int
	Since time.Time
	// Until is when the time of all groups is over, counted from the start.
	Until time.Time
}

// End is a pod that is to be asked to end.
type End struct {
	Pod
	// Grace bounds the pod's grace period, in seconds.
	Grace int64
}

// Step is what is to be done now.
type Step struct {
	Progress
	Ends []End
	// Again is when to look again at the latest; zero if only news can change anything.
	Again time.Time
}

// advance is the next step of a shutdown. With known false the pods aren't known yet: groups pass by their time only.
// Pods of groups that are over, which podsync took before it heard of the shutdown, have until Until, and no
// group waits for them.
func advance(groups []topic.ShutdownGroup, at Progress, pods []Pod, known bool, now time.Time) Step {
	s := Step{Progress: at}
	for s.Group < len(groups) {
		left := members(groups, pods, func(group int) bool { return group == s.Group })
		end := s.Since.Add(time.Duration(groups[s.Group].GracePeriodSeconds) * time.Second)
		if (!known || len(left) > 0) && now.Before(end) {
			s.again(end)
			s.ask(left, end, now)
			break
		}
		if len(left) > 0 { // its time is over, or it has none
			s.ask(left, end, now)
			s.Since = end
		} else if known {
			s.Since = now
		} else {
			s.Since = end
		}
		s.Group++
	}
	s.ask(members(groups, pods, func(group int) bool { return group < s.Group }), s.Until, now)
	return s
}

// members are the pods that aren't over, of the groups that are wanted.
func members(groups []topic.ShutdownGroup, pods []Pod, wanted func(group int) bool) []Pod {
	var list []Pod
	for _, p := range pods {
		if !p.Over && wanted(groupOf(groups, p.Priority)) {
			list = append(list, p)
		}
	}
	return list
}

// ask adds the pods that podsync hasn't been asked to end, or hasn't begun to in time. They have until end.
func (s *Step) ask(pods []Pod, end, now time.Time) {
	for _, p := range pods {
		asked := slices.ContainsFunc(s.Ends, func(e End) bool { return e.UID == p.UID })
		due := p.Asked.IsZero() || !p.Begun && !now.Before(p.Asked.Add(againAfter))
		switch {
		case asked:
		case due:
			grace := int64(max(0, end.Sub(now)+time.Second-1) / time.Second)
			if p.Grace != nil {
				grace = min(grace, *p.Grace)
			}
			s.Ends = append(s.Ends, End{Pod: p, Grace: grace})
			s.again(now.Add(againAfter))
		case !p.Begun:
			s.again(p.Asked.Add(againAfter))
		}
	}
}

func (s *Step) again(at time.Time) {
	if s.Again.IsZero() || at.Before(s.Again) {
		s.Again = at
	}
}
