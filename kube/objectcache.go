package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectKey is the namespace and name of an object.
type ObjectKey = types.NamespacedName

// Strategy is how changes of ConfigMaps and Secrets are noticed; the values of
// KubeletConfiguration's configMapAndSecretChangeDetectionStrategy.
type Strategy string

const (
	// StrategyWatch watches each object that a pod refers to.
	StrategyWatch Strategy = "Watch"
	// StrategyCache reads each referenced object again after a time.
	StrategyCache Strategy = "Cache"
	// StrategyGet reads the object whenever it is asked for; changes are noticed as with StrategyCache.
	StrategyGet Strategy = "Get"
)

const (
	// linger is how long an object that nobody refers to any more stays watched: the next pod of a
	// rolling update, or of the same namespace, wants it again.
	linger = 30 * time.Second
	// reread is how often the strategies without a watch read an object again.
	reread = time.Minute
	// patience is how many refusals Get sits out: the node authorizer learns of a new pod a moment after
	// the node may have. With the delays between tries it is about a second.
	patience = 4
)

// ObjectCache keeps the ConfigMaps or Secrets that somebody refers to, one watch for each, as
// the Node authorizer demands. Immutable objects aren't watched any more once they are known. They are read again for
// each new owner, for there may be another object of the name by then.
// Its methods may be called from several goroutines, before Run too.
type ObjectCache[T any] struct {
	kind     string
	strategy Strategy
	get      func(context.Context, ObjectKey) (*T, error)
	follow   func(context.Context, ObjectKey, sink[T])
	frozen   func(*T) bool
	version  func(*T) string
	changed  *queue[ObjectKey, ObjectKey]
	out      chan ObjectKey

	mu      sync.Mutex
	ctx     context.Context // set while Run runs
	wg      sync.WaitGroup
	entries map[ObjectKey]*entry[T]
	holds   map[string]map[ObjectKey]bool // by owner
}

// entry is one object that is or was referred to.
type entry[T any] struct {
	refs   int
	cancel context.CancelFunc // of the goroutine that follows the object; nil where none runs
	expiry *time.Timer        // set while it lingers
	frozen bool
	known  bool          // object is the server's answer
	stale  bool          // object is the answer to an earlier question, and is asked for again
	object *T            // nil where the server has none
	err    error         // last failure to ask the server, while not known
	failed int           // failures in a row
	answer chan struct{} // closed and replaced when one of these is set
}

// objectCacheConfig is what differs between the kinds.
type objectCacheConfig[T any] struct {
	kind     string
	strategy Strategy
	client   *Client
	get      func(context.Context, ObjectKey) (*T, error)
	source   func(ObjectKey) source
	frozen   func(*T) bool
}

func newObjectCache[T any, P object[T]](cfg objectCacheConfig[T]) *ObjectCache[T] {
	o := &ObjectCache[T]{
		kind: cfg.kind, strategy: cfg.strategy, get: cfg.get, frozen: cfg.frozen,
		version: func(o *T) string { return string(P(o).GetUID()) + "/" + P(o).GetResourceVersion() },
		changed: newQueue[ObjectKey, ObjectKey](), out: make(chan ObjectKey),
		entries: map[ObjectKey]*entry[T]{}, holds: map[string]map[ObjectKey]bool{},
	}
	if o.strategy == "" {
		o.strategy = StrategyWatch
	}
	if o.strategy != StrategyWatch {
		o.follow = o.poll
		return o
	}
	o.follow = func(ctx context.Context, k ObjectKey, s sink[T]) {
		reflect[T, P](ctx, cfg.source(k), s, cfg.client.reporter("resource", cfg.kind, "namespace",
			k.Namespace, "name", k.Name))
	}
	return o
}

// Run keeps the cache until ctx ends, and leaves no goroutine behind.
func (o *ObjectCache[T]) Run(ctx context.Context) error {
	o.mu.Lock()
	o.ctx = ctx
	for k, e := range o.entries {
		o.startLocked(ctx, k, e)
	}
	o.mu.Unlock()
	o.changed.pump(ctx, o.out)

	o.mu.Lock()
	o.ctx = nil
	for _, e := range o.entries {
		o.stopLocked(e)
		if e.expiry != nil {
			e.expiry.Stop()
		}
	}
	o.mu.Unlock()
	o.wg.Wait()
	return nil
}

// Changes delivers the keys of held objects that appeared, changed or went away; of several
// changes of one object the reader may see one. There is one reader.
func (o *ObjectCache[T]) Changes() <-chan ObjectKey { return o.out }

// Hold makes keys the whole set of objects that the owner, such as a pod's UID, refers to; none releases all of
// them. Held objects are followed, so that Get answers from memory and Changes reports changes.
func (o *ObjectCache[T]) Hold(owner string, keys ...ObjectKey) {
	want := make(map[ObjectKey]bool, len(keys))
	for _, k := range keys {
		want[k] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	have := o.holds[owner]
	for k := range want {
		if !have[k] {
			o.acquireLocked(k)
		}
	}
	for k := range have {
		if !want[k] {
			o.releaseLocked(k)
		}
	}
	if len(want) == 0 {
		delete(o.holds, owner)
		return
	}
	o.holds[owner] = want
}

// Get returns the object. For a held object it waits for the server's first answer and then
// answers from memory, also while the API server is away; for others it asks the server. The error is the API
// server's (apierrors.IsNotFound recognizes a missing object), or says that there was no answer before ctx ended.
func (o *ObjectCache[T]) Get(ctx context.Context, k ObjectKey) (*T, error) {
	o.mu.Lock()
	e := o.entries[k]
	o.mu.Unlock()
	if e == nil || (o.strategy == StrategyGet && !o.frozenEntry(e)) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return o.get(ctx, k)
	}
	for {
		o.mu.Lock()
		known, object, err, failed, answer := e.known, e.object, e.err, e.failed, e.answer
		stale := e.stale && err == nil
		o.mu.Unlock()
		switch {
		case stale:
		case known && object != nil:
			return object, nil
		case known:
			return nil, o.notFound(k)
		case err != nil && failed >= patience && !retriable(err):
			return nil, err
		}
		select {
		case <-answer:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s %s is not known yet: %w", o.kind, k, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (o *ObjectCache[T]) notFound(k ObjectKey) error {
	return apierrors.NewNotFound(corev1.Resource(o.kind+"s"), k.Name)
}

// retriable reports failures that pass by themselves: the server can't be reached or is busy.
func retriable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
