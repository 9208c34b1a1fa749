package probe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/agenda"
	"kubelot.dev/daemon/podspec"
)

// tracker knows the pods and their verdicts, and decides which probes run next and what follows from their ends. It
// has no clock, does no I/O and belongs to one goroutine.
type tracker struct {
	pods   map[string]*pod
	nodeIP string
	// synced is true once all that the bus has retained is known: before it nothing is probed and no verdict taken back.
	synced  bool
	exec    limiter
	network limiter
	// A probe is in one of three places: on the agenda, due in its limiter, or under way.
	agenda agenda.Agenda[*probe]
	under  map[*probe]bool
	// moving are the pods that start or stop, by when they no longer count as such.
	moving agenda.Agenda[*pod]
	out    effects
}

// effects are what the shell has to do.
type effects struct {
	verdicts []verdictChange
	events   []topic.Event
	// gone are pods that won't be probed again.
	gone []topic.Ref
}

// verdictChange is a new verdict, or with nil the end of one.
type verdictChange struct {
	key     string
	verdict *topic.Probe
}

type pod struct {
	agenda.Place
	uid    string
	ref    topic.Ref
	update *topic.Pod
	seen   *topic.PodObservation
	// removed is true when podsync has said that the pod is gone.
	removed  bool
	verdicts map[slot]topic.Probe
	probes   map[slot]*probe
	// transit is since when the pod starts or stops; zero while it does neither.
	transit time.Time
}

// probe is one that runs now and then.
type probe struct {
	agenda.Place
	target
	owner    *pod
	ref      topic.Ref
	schedule schedule
	count    Threshold
	errors   int // in a row
	due      time.Time
	began    time.Time // of the run under way
	// waits is true while the probe is due in its limiter, in this class.
	waits bool
	class class
	// series are the metrics of its runs, once there are some.
	series series
}

func newTracker(cores int) *tracker {
	return &tracker{
		pods: map[string]*pod{}, under: map[*probe]bool{}, agenda: agenda.Agenda[*probe]{Tie: tie},
		exec: newLimiter(max(cores, 1), easeFactor*max(cores, 1), true), network: newLimiter(networkLimit,
			networkLimit, false),
	}
}

// take hands over what to do.
func (t *tracker) take() effects {
	out := t.out
	t.out = effects{}
	return out
}

func (t *tracker) pod(uid string) *pod {
	p := t.pods[uid]
	if p == nil {
		p = &pod{uid: uid, verdicts: map[slot]topic.Probe{}, probes: map[slot]*probe{}}
		t.pods[uid] = p
	}
	return p
}

func (t *tracker) setPod(now time.Time, uid string, update topic.Pod) {
	if update.Pod == nil {
		return
	}
	p := t.pod(uid)
	p.update, p.removed = &update, false
	p.ref = topic.Ref{Namespace: update.Pod.Namespace, Name: update.Pod.Name, UID: uid}
	t.refresh(now, p)
}

func (t *tracker) dropPod(now time.Time, uid string) {
	p := t.pod(uid)
	p.update, p.removed = nil, true
	t.out.gone = append(t.out.gone, p.ref)
	t.refresh(now, p)
}

func (t *tracker) setSeen(now time.Time, uid string, seen topic.PodObservation) {
	if seen.UID != uid {
		return // a message without content looks as if the pod had no containers any more
	}
	p := t.pod(uid)
	p.seen = &seen
	t.refresh(now, p)
}

// dropSeen takes note that the runtime has nothing of the pod.
func (t *tracker) dropSeen(now time.Time, uid string) {
	t.setSeen(now, uid, topic.PodObservation{Ref: topic.Ref{UID: uid}})
}

func (t *tracker) setNode(now time.Time, node corev1.Node) {
	ip := ""
	if ips := podspec.HostIPs(&node); len(ips) > 0 {
		ip = ips[0]
	}
	if ip == t.nodeIP {
		return
	}
	t.nodeIP = ip
	for _, p := range t.pods {
		t.refresh(now, p)
	}
}

// retained takes a verdict of an earlier run.
func (t *tracker) retained(key string, verdict topic.Probe) {
	if k, ok := topic.ParseProbeKey(key); ok && !t.synced {
		t.pod(k.UID).verdicts[slot{k.Container, k.Kind}] = verdict
	}
}

// sync begins the work: all that was retained is known. Verdicts that still hold are stated again, for a bus that loses
// its state gets back only what its present writers have said.
func (t *tracker) sync(now time.Time) {
	t.synced = true
	for _, p := range t.pods {
		t.refresh(now, p)
		for s, verdict := range p.verdicts {
			t.out.verdicts = append(t.out.verdicts, verdictChange{s.key(p.uid), &verdict})
		}
	}
}

// refresh brings a pod's verdicts and probes in line with what is known of it.
func (t *tracker) refresh(now time.Time, p *pod) {
	if !t.synced {
		return
	}
	for s, verdict := range p.verdicts {
		if p.outdated(s, verdict) {
			delete(p.verdicts, s)
			t.out.verdicts = append(t.out.verdicts, verdictChange{key: s.key(p.uid)})
		}
	}
	t.setTransit(now, p)
	all := p.targets(t.nodeIP)
	for _, target := range all {
		if _, known := p.verdict(target); !known && target.kind == topic.ProbeStartup &&
			slices.Contains(p.update.StartedBefore, target.id) {
			t.decide(p, target, topic.Probe{
				ContainerID: target.id, Success: true, Message: "started, as the pod's status says",
				Since: now,
			})
		}
	}
	active := map[slot]bool{}
	for _, target := range all {
		if p.runs(target) {
			active[target.slot] = true
			t.keep(now, p, target)
		}
	}
	for s, probe := range p.probes {
		if !active[s] {
			delete(p.probes, s)
			t.withdraw(probe)
		}
	}
	if p.update == nil && len(p.verdicts) == 0 {
		t.forget(p)
	}
}

// forget drops a pod of which nothing is left. One that runs is kept: its pod.update may come after its pleg.event.
func (t *tracker) forget(p *pod) {
	if p.seen == nil || len(p.seen.Containers) == 0 {
		delete(t.pods, p.uid)
		t.moving.Remove(p)
	}
}

// setTransit notes whether the pod starts or stops.
func (t *tracker) setTransit(now time.Time, p *pod) {
	p.setTransit(now)
	if until := p.transit.Add(transitTime); !p.transit.IsZero() && until.After(now) {
		t.moving.Set(p, until)
	} else {
		t.moving.Remove(p)
	}
}

// withdraw has a probe run no more. The end of a run under way finds that.
func (t *tracker) withdraw(p *probe) {
	t.limiter(p).remove(p)
	t.agenda.Remove(p)
}

// keep makes or updates the target's probe.
func (t *tracker) keep(now time.Time, p *pod, target target) {
	old := p.probes[target.slot]
	if old != nil && old.id == target.id && old.exec() == target.exec() {
		old.target = target
		if old.waits {
			t.limiter(old).add(old, p.classOf(old))
		}
		return
	}
	if old != nil {
		t.withdraw(old)
	}
	made := &probe{target: target, owner: p, schedule: newSchedule(target), ref: p.ref}
	_, decided := p.verdict(target)
	made.due = made.schedule.first(target, decided, now)
	p.probes[target.slot] = made
	t.agenda.Set(made, made.due)
}

// decide states a verdict.
func (t *tracker) decide(p *pod, target target, verdict topic.Probe) {
	p.verdicts[target.slot] = verdict
	t.out.verdicts = append(t.out.verdicts, verdictChange{target.key(p.uid), &verdict})
}
