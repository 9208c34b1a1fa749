package live

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why"
)

// Picture is the node at a moment. It shares nothing with the model and may be handed to other goroutines.
type Picture struct {
	At   time.Time `json:"at"`
	Link Link      `json:"bus"`
	// Synced is true once everything that the bus retains has been read. Before that the picture is incomplete.
	Synced  bool     `json:"synced"`
	Daemons []Daemon `json:"daemons"` // in the order of Crew, then by name
	Pods    []Pod    `json:"pods"`    // by namespace and name
	Node    Node     `json:"node"`
	// Topics are all topics that have messages of their own (no calls), in the order of topic.All.
	Topics []Topic `json:"topics"`
	// Flows are who has said what of late: one for each daemon and topic with a message since From.
	Flows []Flow `json:"flows"`
	// Happenings are evictions, restarts and pressures, oldest first, at most maxHappenings. From is the time of the
	// oldest message that is known; zero where there is none.
	Happenings []Happening `json:"happenings"`
	From       time.Time   `json:"from,omitzero"`
	// Garbled is how many messages could not be decoded.
	Garbled int `json:"garbled,omitempty"`
}

// Daemon is one daemon of the crew.
type Daemon struct {
	Name string `json:"name"`
	// State is its own word, or empty where it has never reported; of the bus, which reports nothing, whether it answers.
	// Problem is what is wrong, for a person; empty if nothing is.
	State   topic.HealthState `json:"state"`
	Problem string            `json:"problem,omitempty"`
	Version string            `json:"version,omitempty"`
	PID     int               `json:"pid,omitempty"`
	Started time.Time         `json:"started,omitzero"`
	Since   time.Time         `json:"since,omitzero"`
	Beat    time.Time         `json:"beat,omitzero"`
	// Restarts is the larger of the supervisor's count and of the new processes that were seen since From.
	Restarts int `json:"restarts"`
	// CPU is in cores, over the last two readings; -1 where it isn't known. In the compact layout it is the whole
	// process's, and Shares names the daemons in it.
	CPU         float64  `json:"cpu"`
	MemoryBytes uint64   `json:"memoryBytes,omitempty"`
	Shares      []string `json:"shares,omitempty"`
	// Lag is the longest of the last minute from when the daemon made a message to when the bus had stored it; -1 where
	// no message of the last minute tells.
	Lag time.Duration `json:"lagNanoseconds"`
	// Rate is messages per second that it writes, over the last rateWindow.
	Rate float64 `json:"rate"`
	// Doing says in a few words what it does now.
	Doing string `json:"doing,omitempty"`
}

// Well reports whether the daemon does all that it should.
func (d Daemon) Well() bool { return d.State == topic.Healthy && d.Problem == "" }

// Pod is one pod of the node.
type Pod struct {
	pods.Row
	Static bool `json:"static,omitempty"`
	// State and Sentence are those of `kubelot why`; the sentence is empty for a pod of which nothing is to be waited
	// for. Answer has its causes and what to do. Its timeline is left out; see Model.Why.
	State    why.State  `json:"state"`
	Sentence string     `json:"sentence,omitempty"`
	Answer   why.Answer `json:"answer"`
	Start    Start      `json:"start"`
	// Logs are the logs of its containers on this node, the newest of each, in the order of its specification.
	Logs []Log `json:"logs,omitempty"`
}

// Log is a container's log.
type Log struct {
	Container string `json:"container"`
	Path      string `json:"path"`
}

// Stage is a part of a pod's start.
type Stage string

// The stages of a start, in the order of a pod's way. Some of them run side by side.
const (
	StageAdmit   Stage = "admit"   // from when the node first saw the pod to its first pod.update
	StageVolumes Stage = "volumes" // until all volumes are mounted
	StageSandbox Stage = "sandbox" // the sandbox and its network
	StagePull    Stage = "pull"    // a container's image
	StageCreate  Stage = "create"  // a container, until the runtime has created it
	StageStart   Stage = "start"   // a container, until it runs
	StageProbe   Stage = "probe"   // a container that runs, until its startup or readiness probe has succeeded
	StageReady   Stage = "ready"   // from the last of the above until the pod's status says Ready
)

// Stages are all stages in their order.
func Stages() []Stage {
	return []Stage{
		StageAdmit, StageVolumes, StageSandbox, StagePull, StageCreate, StageStart, StageProbe, StageReady,
	}
}

// Start is a pod's way from when the node first saw it to Ready.
type Start struct {
	Begin time.Time `json:"begin"`
	// Ready is when it was first Ready; zero before that, and where nobody remembers.
	Ready time.Time `json:"ready,omitzero"`
	// Spans are what was done, ordered by stage, time and object; at most maxSpans. A step that failed and was tried
	// again has one span for each try.
	Spans []Span `json:"spans,omitempty"`
	// Partial is true where the history doesn't reach back to the pod's begin, so that spans are missing.
	Partial bool `json:"partial,omitempty"`
}

// Span is one part of a start.
type Span struct {
	Stage Stage `json:"stage"`
	// Object is the container's name, or the probe's kind with it; empty for what is the pod's.
	Object string `json:"object,omitempty"`
	// Image is that of a pull.
	Image string    `json:"image,omitempty"`
	From  time.Time `json:"from"`
	// To is zero while it is under way.
	To    time.Time `json:"to,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Node is the machine as the cluster and its kernel see it.
type Node struct {
	Name  string `json:"name,omitempty"`
	Ready bool   `json:"ready"`
	// Sentence is why it isn't ready, or what else is wrong with it, as `kubelot why node` says.
	Sentence   string                 `json:"sentence,omitempty"`
	Answer     why.NodeAnswer         `json:"answer"`
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	Runtime    string                 `json:"runtime,omitempty"` // name and version
	Kernel     string                 `json:"kernel,omitempty"`
	OS         string                 `json:"os,omitempty"`
	Cores      int                    `json:"cores,omitempty"`
	Pressure   topic.Pressure         `json:"pressure"`
	Shutdown   bool                   `json:"shutdown,omitempty"`
	// Signals are what evictions are decided by, with their thresholds; empty where the machine isn't read.
	Signals []Signal `json:"signals,omitempty"`
	Load    float64  `json:"load,omitempty"`
}

// Signal is an eviction signal.
type Signal struct {
	// Name is the kubelet's, such as nodefs.available; Path is that of its filesystem.
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// Available of Capacity is left: bytes, or a number for inodes and process IDs.
	Available uint64 `json:"available"`
	Capacity  uint64 `json:"capacity"`
	// Threshold is the highest configured one, Limit what it is in the units of Available; empty and zero for none.
	Threshold string `json:"threshold,omitempty"`
	Limit     uint64 `json:"limit,omitempty"`
	// Under is true where less is available than the threshold.
	Under bool `json:"under,omitempty"`
	// Bytes is true where the figures are bytes.
	Bytes bool `json:"bytes,omitempty"`
}

// Topic is one topic of the bus.
type Topic struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Writer is who last wrote it; "" where nobody has. Health and events have many writers: see Flows.
	Writer string    `json:"writer,omitempty"`
	Keys   int       `json:"keys"` // of a state topic, how many it holds
	Rate   float64   `json:"rate"` // messages per second, over the last rateWindow
	Last   time.Time `json:"last,omitzero"`
	// Series are the messages of each of the last 60 seconds, the oldest first.
	Series []int `json:"series"`
}

// Flow is what one daemon says on one topic.
type Flow struct {
	Daemon string    `json:"daemon"`
	Topic  string    `json:"topic"`
	Rate   float64   `json:"rate"`
	Total  int       `json:"total"` // since From
	Last   time.Time `json:"last"`
}

// HappeningKind is what sort of thing happened.
type HappeningKind string

// The kinds of happenings.
const (
	HappenedEviction  HappeningKind = "eviction"
	HappenedRestart   HappeningKind = "restart" // of a container
	HappenedDaemon    HappeningKind = "daemon"  // a daemon started, stopped, or changed its health
	HappenedPressure  HappeningKind = "pressure"
	HappenedNodeReady HappeningKind = "ready" // the Node became Ready, or ceased to be
)

// Happening is something in the node's day.
type Happening struct {
	At   time.Time     `json:"at"`
	Kind HappeningKind `json:"kind"`
	// Pod is set for evictions and restarts, Daemon for daemons.
	Pod    *topic.Ref `json:"pod,omitempty"`
	Daemon string     `json:"daemon,omitempty"`
	What   string     `json:"what"`
	// Bad is true for what a person should look at.
	Bad bool `json:"bad,omitempty"`
}
