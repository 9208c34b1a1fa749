package kube

import (
	"context"
	"sync"
)

// queue holds the latest value of each key for a reader that may be slow. Its size is bounded by the number of keys;
// put never blocks. The bus has one like it (bus/internal/latest): neither module may import the other, and a module
// for these lines alone would have to be named in the go.mod of every daemon and test.
type queue[K comparable, V any] struct {
	mu      sync.Mutex
	items   []*item[K, V]
	pending map[K]*item[K, V]
	wake    chan struct{}
}

type item[K comparable, V any] struct {
	key   K
	value V
	// mark is true for a value without a key, which is never overwritten.
	mark bool
}

func newQueue[K comparable, V any]() *queue[K, V] {
	return &queue[K, V]{pending: map[K]*item[K, V]{}, wake: make(chan struct{}, 1)}
}

// put makes v the key's value; it takes the place of one that is still unread.
func (q *queue[K, V]) put(k K, v V) {
	q.mu.Lock()
	if it := q.pending[k]; it != nil {
		it.value = v
	} else {
		it = &item[K, V]{key: k, value: v}
		q.pending[k] = it
		q.items = append(q.items, it)
	}
	q.mu.Unlock()
	q.signal()
}

// mark queues a value after everything that is queued now. Two marks in a row are one.
func (q *queue[K, V]) mark(v V) {
	q.mu.Lock()
	if n := len(q.items); n == 0 || !q.items[n-1].mark {
		q.items = append(q.items, &item[K, V]{value: v, mark: true})
	}
	q.mu.Unlock()
	q.signal()
}

func (q *queue[K, V]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue[K, V]) pop() (V, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		var none V
		return none, false
	}
	it := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	if !it.mark {
		delete(q.pending, it.key)
	}
	return it.value, true
}

// pump sends what is queued to out until ctx ends.
func (q *queue[K, V]) pump(ctx context.Context, out chan<- V) {
	for {
		v, ok := q.pop()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- v:
		case <-ctx.Done():
			return
		}
	}
}
