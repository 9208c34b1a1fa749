package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus"
)

const (
	// tombstoneAge is how long a removed key's tombstone is kept for readers that are away.
	tombstoneAge = 15 * time.Minute
	sweepEvery   = 5 * time.Minute
	// sweepBatch is how many keys are looked at per question to the store.
	sweepBatch = 500
)

// sweepForever removes old tombstones until ctx ends.
func sweepForever(ctx context.Context, a *admin, log *slog.Logger) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			err := a.do(ctx, func(ctx context.Context, js jetstream.JetStream) error {
				removed, err := sweep(ctx, js, now.Add(-tombstoneAge))
				log.Debug("old tombstones removed", "count", removed)
				return err
			})
			if err != nil && ctx.Err() == nil {
				log.Warn("old tombstones can't be removed, trying again later", "error", err)
			}
		}
	}
}

// sweep removes every key whose last message is a tombstone from before the given time.
func sweep(ctx context.Context, js jetstream.JetStream, before time.Time) (int, error) {
	stream, err := js.Stream(ctx, streamState)
	if err != nil {
		return 0, fmt.Errorf("find the stream %s: %w", streamState, err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: ">", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return 0, fmt.Errorf("read the keys of %s: %w", streamState, err)
	}
	removed := 0
	for {
		batch, err := consumer.FetchNoWait(sweepBatch)
		if err != nil {
			return removed, fmt.Errorf("read the keys of %s: %w", streamState, err)
		}
		count := 0
		for m := range batch.Messages() {
			count++
			gone, err := bury(ctx, stream, m, before)
			if err != nil {
				return removed, err
			}
			if gone {
				removed++
			}
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return removed, fmt.Errorf("read the keys of %s: %w", streamState, err)
		}
		if count < sweepBatch {
			return removed, nil
		}
	}
}

// bury removes the key of m if m is an old tombstone.
func bury(ctx context.Context, stream jetstream.Stream, m jetstream.Msg, before time.Time) (bool, error) {
	if values := m.Headers()[bus.HeaderTombstone]; len(values) == 0 || values[0] != "1" {
		return false, nil
	}
	meta, err := m.Metadata()
	if err != nil {
		return false, fmt.Errorf("read the key %s: %w", m.Subject(), err)
	}
	if meta.Timestamp.After(before) {
		return false, nil
	}
	// Up to and with the tombstone, but not a value that was set since.
	err = stream.Purge(ctx, jetstream.WithPurgeSubject(m.Subject()), jetstream.WithPurgeSequence(meta.Sequence.Stream+1))
	if err != nil {
		return false, fmt.Errorf("remove the key %s: %w", m.Subject(), err)
	}
	return true, nil
}
