package container

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// minAge is how old what belongs to nobody must be.
const minAge = time.Minute

// Life is how a pod stands.
type Life int

const (
	// Gone pods are neither wanted nor has podsync a worker for them.
	Gone Life = iota
	// Wanted pods start, run or are being stopped.
	Wanted
	// Ended pods have stopped for good and still exist.
	Ended
)

// Policy is how many dead containers are kept; a negative number means any.
type Policy struct {
	MaxPerContainer int
	MaxTotal        int
	MinAge          time.Duration
}

// Input is what is decided from.
type Input struct {
	Policy     Policy
	Containers []*runtimeapi.Container
	Sandboxes  []*runtimeapi.PodSandbox
	// Life is the state of the pod with the UID.
	Life func(uid string) Life
	Now  time.Time
	// Squeeze takes the containers of ended pods too, as is done under disk pressure.
	Squeeze bool
}

// Choice is a container or sandbox and what is done with it.
type Choice struct {
	topic.Decision
	// Name and RestartCount name a container's log, unless it is Unnamed: what the runtime has of it can't be read.
	Name         string
	RestartCount int
	Unnamed      bool
}

// dead is a container that has exited.
type dead struct {
	*runtimeapi.Container
	ref     topic.Ref
	name    string
	info    labels.ContainerInfo
	unnamed bool
	created time.Time
	reason  string // why it goes; empty while it stays
}

// Pick decides about every dead container and every sandbox that isn't ready.
func Pick(in Input) []Choice {
	all := find(in)
	for _, d := range all {
		d.reason = in.unwanted(d)
	}
	in.perContainer(all)
	in.total(all)
	choices := make([]Choice, 0, len(all))
	going := map[string]bool{}
	for _, d := range all {
		c := Choice{Name: d.name, RestartCount: d.info.RestartCount, Unnamed: d.unnamed, Decision: topic.Decision{
			Action: topic.ActionRemoveContainer, Object: d.Id, Pod: &d.ref, Reason: d.reason,
		}}
		if d.reason == "" {
			c.Action, c.Reason = topic.ActionKeep, fmt.Sprintf("newest dead instances of container %s", d.name)
		}
		going[d.Id] = d.reason != ""
		choices = append(choices, c)
	}
	return append(choices, in.sandboxes(going)...)
}

// find are the dead containers of pods, newest first. What was never started, or is in a state that the runtime doesn't
// know, is podsync's as long as the pod has not ended.
func find(in Input) []*dead {
	var all []*dead
	for _, c := range in.Containers {
		ref := labels.Pod(c.GetLabels())
		if ref.UID == "" || c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING ||
			c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED && in.Life(ref.UID) == Wanted {
			continue
		}
		info, err := labels.Parse(c.GetAnnotations()) // podsync reports malformed ones
		all = append(all, &dead{
			Container: c, ref: ref, info: info, unnamed: err != nil, created: time.Unix(0, c.GetCreatedAt()),
			name: cmp.Or(c.GetLabels()[labels.ContainerName], c.GetMetadata().GetName()),
		})
	}
	slices.SortFunc(all, func(a, b *dead) int { return cmp.Or(b.created.Compare(a.created), laterRun(a, b)) })
	return all
}

// laterRun orders the instances of one container, the newest first: the last attempt, whatever the clock said when it
// was created.
func laterRun(a, b *dead) int {
	return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), b.created.Compare(a.created),
		strings.Compare(a.Id, b.Id))
}

// unwanted says why all dead containers of the pod go, if they do.
func (in Input) unwanted(d *dead) string {
	switch life := in.Life(d.ref.UID); {
	case life == Gone && in.Now.Sub(d.created) >= minAge:
		return "its pod is gone"
	case life == Ended && d.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED:
		return "its pod has ended, and it never ran" // nor does it take the place of one that has a log
	case life == Ended && in.Squeeze:
		return "its pod has ended, and the node is short of disk space"
	}
	return ""
}

// perContainer keeps the newest of each container.
func (in Input) perContainer(all []*dead) {
	if most := in.Policy.MaxPerContainer; most >= 0 {
		in.keep(all, most, func(d *dead) string {
			return fmt.Sprintf("more than %d dead instances of container %s", most, d.name)
		})
	}
}

// keep keeps that many of each container, and says why the others go.
func (in Input) keep(all []*dead, most int, reason func(*dead) string) {
	kept := map[[2]string]int{}
	for _, d := range slices.SortedFunc(slices.Values(all), laterRun) {
		if d.reason != "" || in.young(d) {
			continue
		}
		key := [2]string{d.ref.UID, d.name}
		if kept[key]++; kept[key] > most {
			d.reason = reason(d)
		}
	}
}

func (in Input) young(d *dead) bool { return in.Now.Sub(d.created) < in.Policy.MinAge }

// total keeps as many as the node may have: an equal share of each container, at least one, and of these the newest.
func (in Input) total(all []*dead) {
	units, count := map[[2]string]bool{}, 0
	for _, d := range all {
		if d.reason == "" && !in.young(d) {
			units[[2]string{d.ref.UID, d.name}] = true
			count++
		}
	}
	if in.Policy.MaxTotal < 0 || count <= in.Policy.MaxTotal {
		return
	}
	reason := fmt.Sprintf("more than %d dead containers on the node", in.Policy.MaxTotal)
	in.keep(all, max(in.Policy.MaxTotal/len(units), 1), func(*dead) string { return reason })
	left := 0
	for _, d := range all {
		if d.reason != "" || in.young(d) {
			continue
		}
		if left++; left > in.Policy.MaxTotal {
			d.reason = reason
		}
	}
}

// sandboxes decides about the sandboxes that are neither ready nor have a container that stays.
func (in Input) sandboxes(going map[string]bool) []Choice {
	used := map[string]bool{}
	for _, c := range in.Containers {
		if !going[c.GetId()] {
			used[c.GetPodSandboxId()] = true
		}
	}
	all := slices.Clone(in.Sandboxes)
	slices.SortStableFunc(all, func(a, b *runtimeapi.PodSandbox) int { // of one pod's, the last attempt is the newest
		return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
			cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
	})
	newest := map[string]string{}
	var choices []Choice
	for _, s := range all {
		ref := labels.Pod(s.GetLabels())
		if ref.UID == "" {
			continue
		}
		first := newest[ref.UID] == ""
		if first {
			newest[ref.UID] = s.GetId()
		}
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		c := Choice{Decision: topic.Decision{Action: topic.ActionRemoveSandbox, Object: s.GetId(), Pod: &ref}}
		switch {
		case used[s.GetId()]:
			c.Action, c.Reason = topic.ActionKeep, "sandbox with containers"
		case in.Now.Sub(time.Unix(0, s.GetCreatedAt())) < minAge:
			c.Action, c.Reason = topic.ActionKeep, "sandbox younger than "+minAge.String()
		case in.Life(ref.UID) == Gone:
			c.Reason = "its pod is gone, and it has no containers"
		case first:
			c.Action, c.Reason = topic.ActionKeep, "newest sandbox of a pod that exists"
		default:
			c.Reason = "the pod has a newer sandbox, and it has no containers"
		}
		choices = append(choices, c)
	}
	return choices
}
