package kube

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func (o *ObjectCache[T]) acquireLocked(k ObjectKey) {
	e := o.entries[k]
	if e == nil {
		e = &entry[T]{answer: make(chan struct{})}
		o.entries[k] = e
		if o.ctx != nil {
			o.startLocked(o.ctx, k, e)
		}
	} else if e.frozen {
		// The object may have been deleted and created again under its name.
		e.frozen, e.stale = false, true
		if o.ctx != nil {
			o.startLocked(o.ctx, k, e)
		}
	}
	if e.expiry != nil {
		e.expiry.Stop()
		e.expiry = nil
	}
	e.refs++
}

func (o *ObjectCache[T]) releaseLocked(k ObjectKey) {
	e := o.entries[k]
	if e.refs--; e.refs > 0 {
		return
	}
	e.expiry = time.AfterFunc(linger, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.entries[k] == e && e.refs == 0 {
			o.stopLocked(e)
			delete(o.entries, k)
		}
	})
}

// startLocked begins to follow the object until the end of ctx, which is Run's.
func (o *ObjectCache[T]) startLocked(ctx context.Context, k ObjectKey, e *entry[T]) {
	if e.frozen || e.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	e.cancel = cancel
	o.wg.Go(func() { o.follow(ctx, k, o.sink(ctx, k, e)) })
}

func (o *ObjectCache[T]) stopLocked(e *entry[T]) {
	if e.cancel != nil {
		e.cancel()
		e.cancel = nil
	}
}

func (o *ObjectCache[T]) frozenEntry(e *entry[T]) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return e.frozen
}

// sink takes what the server says of one object.
func (o *ObjectCache[T]) sink(ctx context.Context, k ObjectKey, e *entry[T]) sink[T] {
	return sink[T]{
		set:    func(v *T) { o.learn(ctx, k, e, v) },
		remove: func(*T) { o.learn(ctx, k, e, nil) },
		replace: func(all []*T) {
			if len(all) > 0 {
				o.learn(ctx, k, e, all[0])
				return
			}
			o.confirmMissing(ctx, k, e)
		},
		failed: func(err error) { o.fail(e, err) },
	}
}

// confirmMissing asks the store behind the server's cache: the object may be newer than the cache that
// the list came from, and a pod must not fail for that.
func (o *ObjectCache[T]) confirmMissing(ctx context.Context, k ObjectKey, e *entry[T]) {
	v, err := o.getOnce(ctx, k)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		// Not found, or not answered: then the list counts, and the watch brings what it lacks.
		v = nil
	}
	o.learn(ctx, k, e, v)
}

// learn records the server's answer; nil means that there is no such object. ctx is that of the goroutine that asked:
// what comes after its end counts no more.
func (o *ObjectCache[T]) learn(ctx context.Context, k ObjectKey, e *entry[T], v *T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	same := e.known && (e.object == nil) == (v == nil) && (v == nil || o.version(v) == o.version(e.object))
	awaited := e.stale
	e.known, e.stale, e.object, e.err, e.failed = true, false, v, nil, 0
	if v != nil && o.frozen(v) {
		e.frozen = true
		o.stopLocked(e)
	}
	if !same || awaited {
		o.answerLocked(e)
	}
	if !same {
		o.changed.put(k, k)
	}
}

// fail records that the server could not be asked; what is known stays.
func (o *ObjectCache[T]) fail(e *entry[T], err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.err = err; retriable(err) {
		e.failed = 0
	} else {
		e.failed++
	}
	o.answerLocked(e)
}

func (o *ObjectCache[T]) answerLocked(e *entry[T]) {
	close(e.answer)
	e.answer = make(chan struct{})
}

// poll follows an object without a watch.
func (o *ObjectCache[T]) poll(ctx context.Context, k ObjectKey, s sink[T]) {
	for delay := reflectDelay; ctx.Err() == nil; {
		v, err := o.getOnce(ctx, k)
		switch {
		case err == nil:
			s.set(v)
			delay = reread
		case apierrors.IsNotFound(err):
			s.remove(nil)
			delay = reflectDelayMax
		default:
			s.failed(err)
			delay = min(max(2*delay, reflectDelay), reflectDelayMax)
		}
		sleep(ctx, delay)
	}
}

func (o *ObjectCache[T]) getOnce(ctx context.Context, k ObjectKey) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return o.get(ctx, k)
}
