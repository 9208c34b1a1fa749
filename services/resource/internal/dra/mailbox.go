package dra

import (
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// Stage is how far a pod is that is to have its claims.
type Stage int

// The stages.
const (
	// Judged pods may be refused still. Only what an earlier process has had prepared for them is.
	Judged Stage = iota
	// Admitted pods are to run.
	Admitted
	// Sandboxed pods have a sandbox that is up. Their claims were prepared before, by whatever agent.
	Sandboxed
)

// word is the last that was said of a pod.
type word struct {
	// pod is nil for one that is gone.
	pod   *corev1.Pod
	stage Stage
	ended bool
	// again is true where the pod was gone in between: the daemon has forgotten what it had heard of it.
	again bool
}

// mailbox is what the daemon says and hears. Its methods may be called from any goroutine, and none waits.
type mailbox struct {
	mu    sync.Mutex
	words map[types.UID]word
	// order is that in which pods were first spoken of.
	order   []types.UID
	plugins map[string]topic.Plugin // nil if nothing new was said
	synced  bool
	out     map[types.UID]Status
	in      chan struct{}
	changes chan struct{}
	idle    atomic.Bool
}

func newMailbox() *mailbox {
	return &mailbox{
		words: map[types.UID]word{}, out: map[types.UID]Status{}, in: make(chan struct{}, 1),
		changes: make(chan struct{}, 1),
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Idle reports whether nothing is prepared, nor to be done. It is false before that is known.
func (b *mailbox) Idle() bool { return b.idle.Load() }

// Want says that the pod is to have its claims. It may be said again, with a newer pod.
func (b *mailbox) Want(pod *corev1.Pod, stage Stage) { b.say(pod.UID, word{pod: pod, stage: stage}) }

// Ended says that no container of the pod runs any more, nor ever will.
func (b *mailbox) Ended(pod *corev1.Pod) { b.say(pod.UID, word{pod: pod, ended: true}) }

// Forget says that the pod is gone from the node. What it has left is still given back.
func (b *mailbox) Forget(uid types.UID) { b.say(uid, word{}) }

func (b *mailbox) say(uid types.UID, w word) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, said := b.words[uid]
	if !said {
		b.order = append(b.order, uid)
	}
	w.again = said && w.pod != nil && (before.again || before.pod == nil)
	b.words[uid] = w
	if w.pod == nil {
		delete(b.out, uid)
	}
	wake(b.in)
}

// Synced says that all pods of the node have been told of: others in the state file are gone.
func (b *mailbox) Synced() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.synced = true
	wake(b.in)
}

// Registered takes all plugins that are registered, of whatever type. The first call says that all that there are at
// the start are in it.
func (b *mailbox) Registered(plugins map[string]topic.Plugin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plugins = maps.Clone(plugins)
	if b.plugins == nil {
		b.plugins = map[string]topic.Plugin{}
	}
	wake(b.in)
}

// Changes delivers when Take has something.
func (b *mailbox) Changes() <-chan struct{} { return b.changes }

// Take returns the status of each pod whose status has changed since the last call.
func (b *mailbox) Take() map[types.UID]Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.out
	b.out = map[types.UID]Status{}
	return all
}

// tell has the daemon hear of a pod's status.
func (b *mailbox) tell(uid types.UID, s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, said := b.words[uid]; said && (w.pod == nil || w.again) {
		return // it is gone, and nobody wants to hear of it; one that is back is told of when that is read
	}
	b.out[uid] = s
	wake(b.changes)
}

// letter is what was said since the last one.
type letter struct {
	words   map[types.UID]word
	order   []types.UID
	plugins map[string]topic.Plugin
	synced  bool
}

// next returns what was said since the last call.
func (b *mailbox) next() letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := letter{b.words, b.order, b.plugins, b.synced}
	b.words, b.order, b.plugins = map[types.UID]word{}, nil, nil
	return l
}
