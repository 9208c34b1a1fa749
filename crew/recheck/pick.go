package recheck

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/services/gc"
)

// collected is how long after a container could go it must have gone: gc looks each minute.
const collected = 150 * time.Second

// gcCheck is the part of a check that judges what gc removes and evicts.
type gcCheck struct{ *check }

// checkPicks judges which dead containers and sandboxes were removed.
func (c gcCheck) checkPicks() {
	picks := c.core("pick", "which dead containers and sandboxes gc removes")
	for _, d := range c.gc {
		switch d.Action {
		case topic.ActionEvict:
		case topic.ActionRemoveContainer, topic.ActionRemoveSandbox:
			c.judgePick(picks, d)
		default:
			picks.Unjudged[fmt.Sprintf("%q follows from files and images, which aren't on the bus", string(d.Action))]++
		}
	}
	c.checkKept(picks)
}

// judgePick judges one removal.
func (c gcCheck) judgePick(picks *Core, d topic.Decision) {
	if d.Pod == nil || c.pods[d.Pod.UID] == nil || len(c.pods[d.Pod.UID].seen) == 0 {
		picks.Unjudged["the pod isn't in the recording"]++
		return
	}
	now := "it stays"
	for _, age := range []time.Duration{time.Second, past, lag, settled} {
		for _, squeeze := range []bool{false, true} {
			for _, choice := range c.cores.Pick(c.dead(d.At.Add(-age), squeeze)) {
				if choice.Object != d.Object {
					continue
				}
				if choice.Action == d.Action && choice.Reason == d.Reason {
					picks.Same++
					return
				}
				now = string(choice.Action) + ": " + choice.Reason
			}
		}
	}
	c.differs(picks, Difference{
		At: d.At, Object: d.Pod.Namespace + "/" + d.Pod.Name + " " + d.Object,
		Recorded: string(d.Action) + ": " + d.Reason, Now: now,
	})
}

// checkKept looks for what this version would have removed and is still there at the end.
func (c gcCheck) checkKept(picks *Core) {
	t := c.last.Add(-collected)
	if t.Before(c.first) || len(c.sources) == 0 {
		return
	}
	// It must have been due all the time.
	for _, was := range c.cores.Pick(c.dead(t, false)) {
		if was.Action == topic.ActionKeep || was.Pod == nil || c.removed(was.Object) {
			continue
		}
		there := slices.ContainsFunc(c.cores.Pick(c.dead(c.last, false)), func(d topic.Decision) bool {
			return d.Object == was.Object && d.Action == was.Action
		})
		if there {
			c.differs(picks, Difference{
				At: t, Object: was.Pod.Namespace + "/" + was.Pod.Name + " " + was.Object,
				Recorded: "it stays for " + collected.String(), Now: string(was.Action) + ": " + was.Reason,
			})
		}
	}
}

// removed reports whether a removal was decided, though it may have failed.
func (c gcCheck) removed(object string) bool {
	return slices.ContainsFunc(c.gc, func(d topic.Decision) bool { return d.Object == object })
}

// dead is what gc would have chosen from at a time.
func (c gcCheck) dead(t time.Time, squeeze bool) gc.DeadInput {
	in := gc.DeadInput{
		Policy: gc.DeadPolicy{
			MaxPerContainer: c.number("--maximum-dead-containers-per-container", 1),
			MaxTotal:        c.number("--maximum-dead-containers", -1),
		},
		Now: t, Squeeze: squeeze, Life: func(uid string) gc.PodLife { return c.life(uid, t) },
	}
	if age, err := time.ParseDuration(c.setting("--minimum-container-ttl-duration")); err == nil {
		in.Policy.MinAge = age
	}
	c.eachPod(func(p *pod) {
		o := newRuntime(p).at(t, false)
		for i := range o.Containers {
			in.Containers = append(in.Containers, listed(o, o.Containers[i]))
		}
		for _, s := range o.Sandboxes {
			state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			if s.Ready {
				state = runtimeapi.PodSandboxState_SANDBOX_READY
			}
			in.Sandboxes = append(in.Sandboxes, &runtimeapi.PodSandbox{
				Id: s.ID, State: state, CreatedAt: s.CreatedAt.UnixNano(), Labels: labelsOf(o.Ref, ""),
				Metadata: &runtimeapi.PodSandboxMetadata{Attempt: s.Attempt},
			})
		}
	})
	return in
}

// life is how the pod stood.
func (c gcCheck) life(uid string, t time.Time) gc.PodLife {
	if p := c.pods[uid]; p != nil {
		if u, ok := p.updates.last(t); ok {
			if u.Lifecycle == topic.Terminated {
				return gc.PodEnded
			}
			return gc.PodWanted
		}
	}
	if s, _ := c.sources.last(t); slices.Contains(s.Pods, uid) {
		return gc.PodWanted
	}
	return gc.PodGone
}

// listed is a container as the runtime lists it.
func listed(o topic.PodObservation, from topic.Container) *runtimeapi.Container {
	state := map[topic.ContainerState]runtimeapi.ContainerState{
		topic.ContainerCreated: runtimeapi.ContainerState_CONTAINER_CREATED,
		topic.ContainerRunning: runtimeapi.ContainerState_CONTAINER_RUNNING,
		topic.ContainerExited:  runtimeapi.ContainerState_CONTAINER_EXITED,
		topic.ContainerUnknown: runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	}[from.State]
	return &runtimeapi.Container{
		Id: from.ID, PodSandboxId: from.SandboxID, State: state, CreatedAt: from.CreatedAt.UnixNano(),
		Labels: labelsOf(o.Ref, from.Name), Metadata: &runtimeapi.ContainerMetadata{Name: from.Name, Attempt: from.Attempt},
	}
}

func labelsOf(ref topic.Ref, container string) map[string]string {
	all := map[string]string{labels.PodNamespace: ref.Namespace, labels.PodName: ref.Name, labels.PodUID: ref.UID}
	if container != "" {
		all[labels.ContainerName] = container
	}
	return all
}

// number is a setting that is a number.
func (s *story) number(name string, unset int) int {
	if n, err := strconv.Atoi(s.setting(name)); err == nil {
		return n
	}
	return unset
}
