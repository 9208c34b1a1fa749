package embed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/internal/layout"
)

// boundShare is by which share of it the limit of the states must change, so that it is changed.
const boundShare = 4

// bound is the limit of the states, which follows the space under the store: others may take it, and give it back.
type bound struct {
	// changing is held by who changes the stream's limit, be it for one message.
	changing sync.Mutex
	limit    atomic.Int64 // bytes
	// last is what the last look has made of the space. It belongs to follow.
	last int64
}

func newBound(limit int64) *bound {
	b := &bound{last: limit}
	b.limit.Store(limit)
	return b
}

// follow looks at the space under the store, and adapts the limit where that changes it much. What counts is what holds
// at two looks: others may need the space for a moment, and a block that is being replaced may be overlooked. The
// limit is lowered also where little space is left: that takes next to none.
func (b *bound) follow(ctx context.Context, store string, own *admin, log *slog.Logger) error {
	space, err := spaceOf(store)
	if err != nil {
		return err
	}
	old, now := b.limit.Load(), limitsFor(space).state
	next := clamp(old, min(now, b.last), max(now, b.last))
	b.last = now
	enough := tried
	if next > old {
		enough = room
	}
	if change := next - old; max(change, -change) < old/boundShare || !enough(store) {
		return nil
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	err = own.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, layout.StreamState)
		if err != nil {
			return err
		}
		config := stream.CachedInfo().Config
		config.MaxBytes = next
		_, err = js.UpdateStream(ctx, config) // what it keeps stays in any case, see replacer
		return err
	})
	if err != nil {
		return fmt.Errorf("adapt the limit of the states: %w", err)
	}
	b.limit.Store(next)
	log.Info("the limit of the states follows the space under the store", "bytes", next, "before", old)
	return nil
}
