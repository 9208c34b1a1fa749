package live

import (
	"hash/fnv"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why"
)

const (
	// maxSteps and maxEvents bound what is remembered of one pod, maxHistory what is remembered of the node.
	maxSteps, maxEvents, maxHistory = 400, 100, 500
	// goneAfter is how long something is remembered of a pod that has no pod.update: messages of a pod that is new or
	// gone pass each other.
	goneAfter = time.Minute
)

// Model is what is known of a node.
type Model struct {
	// snapshot is what is stated now. Its histories are the node's; those of a pod are in its log.
	snapshot why.Snapshot
	facts    topic.Machine
	// stated is when each subject's value was stated.
	stated     map[string]time.Time
	retainedAt time.Time
	synced     bool
	link       Link

	counts     counts
	pods       map[string]*podLog
	daemons    map[string]*daemonLog
	before     before
	happenings []Happening
	machine    *Machine
	garbled    int
	// from is the time of the oldest message.
	from time.Time
}

// New makes a model that knows nothing.
func New() *Model {
	return &Model{
		stated: map[string]time.Time{}, counts: newCounts(),
		pods: map[string]*podLog{}, daemons: map[string]*daemonLog{}, before: newBefore(),
	}
}

// Take learns from an input.
func (m *Model) Take(in Input) {
	if in.Link != nil {
		m.link = *in.Link
	}
	if in.Machine != nil {
		machine := *in.Machine
		m.machine = &machine
	}
	for name, reading := range in.Processes {
		m.daemon(name).process(reading)
	}
	if in.Processes != nil {
		m.forgetProcesses(in.Processes)
		m.snapshot.Pulls = in.Pulls
	}
	if !in.RetainedAt.IsZero() {
		m.retain(in.Retained, in.RetainedAt)
	}
	if in.Message != nil {
		m.message(*in.Message)
	}
}

// message learns from a message that passes, or of the history.
func (m *Model) message(msg bus.Message) {
	e, err := understand(msg)
	if e.topic == nil {
		m.garbled++
		return
	}
	if !m.counts.count(e) {
		return
	}
	if m.from.IsZero() || msg.Time.Before(m.from) {
		m.from = msg.Time
	}
	if err != nil {
		m.garbled++
		return
	}
	current := m.current(e)
	if current && e.topic.Kind() == bus.KindState {
		m.state(e)
	}
	m.daemon(e.writer).note(e)
	m.logMessage(e, current)
	m.happen(e)
}

// current reports whether the message states how things are now: what is older than the reading of all that is
// retained was in it, or has gone since.
func (m *Model) current(e entry) bool {
	if !e.Time.After(m.retainedAt) && !m.retainedAt.IsZero() {
		return false
	}
	return !e.Time.Before(m.stated[e.Subject])
}

// retain replaces what was stated before the reading by what was read.
func (m *Model) retain(messages []bus.Message, at time.Time) {
	found := map[string]bool{}
	for _, msg := range messages {
		found[msg.Subject] = true
	}
	for subject, stated := range m.stated {
		if found[subject] || stated.After(at) {
			continue
		}
		e, _ := understand(bus.Message{Subject: subject, Header: map[string]string{bus.HeaderTombstone: "1"}})
		if e.topic != nil {
			m.state(e)
		}
	}
	m.retainedAt, m.synced = at, true
	for _, msg := range messages {
		e, err := understand(msg)
		if err != nil {
			m.garbled++
			continue
		}
		if e.topic.Kind() != bus.KindState || msg.Time.Before(m.stated[msg.Subject]) {
			continue
		}
		m.state(e)
		m.logMessage(e, true)
		if h, ok := e.value.(topic.DaemonHealth); ok {
			m.daemon(e.key).read(h)
		}
	}
}

// state keeps what is stated.
func (m *Model) state(e entry) {
	if e.value == nil {
		delete(m.stated, e.Subject)
	} else {
		m.stated[e.Subject] = e.Time
	}
	s := &m.snapshot
	switch e.topic.Name() {
	case topic.PodUpdate.Name():
		s.Updates = put(s.Updates, e)
	case topic.PodSources.Name():
		s.Sources = only[topic.Sources](e)
	case topic.StatusPatch.Name():
		s.Statuses = put(s.Statuses, e)
	case topic.MergedStatus.Name():
		s.Merged = put(s.Merged, e)
	case topic.PLEGEvent.Name():
		s.Observations = put(s.Observations, e)
	case topic.VolumeState.Name():
		s.Volumes = put(s.Volumes, e)
	case topic.ProbeResult.Name():
		s.Probes = put(s.Probes, e)
	case topic.PodAllocation.Name():
		s.Allocations = put(s.Allocations, e)
	case topic.Health.Name():
		s.Healths = put(s.Healths, e)
	default:
		m.nodeState(e)
	}
}

// nodeState keeps what is stated of the node; other topics are counted only.
func (m *Model) nodeState(e entry) {
	s := &m.snapshot
	switch v := e.value.(type) {
	case topic.Machine:
		m.facts = v
	case topic.Runtime:
		s.Runtime = v
	case topic.Pressure:
		s.Pressure = v
	case topic.Shutdown:
		s.Shutdown = v
	default:
		if e.topic.Name() == topic.NodeObject.Name() {
			s.Node = nodeOf(e)
		}
	}
}

// hash tells two messages of the same time apart.
func hash(m bus.Message) uint64 {
	h := fnv.New64a()
	h.Write(m.Data)
	if m.Tombstone() {
		h.Write([]byte{0})
	}
	return h.Sum64()
}
