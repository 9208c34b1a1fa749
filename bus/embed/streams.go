package embed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

const (
	maxEventAge = 24 * time.Hour
	// smallBytes is more than the daemons' own states, or the positions of all readers, take. Streams that are as small as
	// that get blocks of 32 kB from the server; those of 128 kB and more get 4 MiB.
	smallBytes = 96 << 10
	// maxDaemons is for how many daemons there is room in such a stream, so that none can take the others' room.
	maxDaemons = 16
)

// limits are how much the bus keeps, in bytes of messages.
type limits struct {
	// state bounds the states: beyond it no keys are taken, and with reserve no value at all.
	state, reserve int64
	// history bounds the old values of states, event the events; the oldest go first.
	history, event int64
}

// limitsFor derives the limits from the size of the file system under the store, in bytes. The store is on a tmpfs and
// counts as memory of the bus, so the limits stay well below MemoryHigh of kubelot-bus.service. The history of a pod is
// compressed to a fifth of its size.
func limitsFor(space int64) limits {
	state := clamp(space/4, 16<<20, 256<<20)
	return limits{
		state: state, reserve: state / 8,
		history: clamp(space/40, 2<<20, 5<<20), event: clamp(space/80, 1<<20, 2<<20),
	}
}

// store is what the server must let all streams have together, so that none is refused what it may keep. A replacement
// raises the limit of the states by two messages and a little.
func (l limits) store() int64 {
	return l.state + l.reserve + 3*bus.MaxPayload + l.history + l.event + 2*smallBytes
}

func clamp(n, low, high int64) int64 { return min(max(n, low), high) }

// space is the size of the file system that has dir, in bytes.
func space(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("start the bus: read the size of the file system of %s: %w", dir, err)
	}
	return int64(fs.Blocks) * fs.Bsize, nil
}

// streamConfigs are the streams.
func streamConfigs(crew Crew, l limits) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			// A tombstone carries the time for which it is kept (Nats-TTL). There must be only one message per subject:
			// otherwise an older value would be the last one again once the tombstone has gone.
			Name: layout.StreamState, Subjects: stateSubjects(crew.State),
			MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
			MaxBytes: l.state, Discard: jetstream.DiscardNew, // see replacer
		},
		{
			Name: layout.StreamHistory, Subjects: historySubjects(crew.State),
			MaxBytes: l.history, MaxAge: maxEventAge, Compression: jetstream.S2Compression,
		},
		{
			Name: layout.StreamEvent, Subjects: crew.Event,
			MaxBytes: l.event, MaxAge: maxEventAge, Compression: jetstream.S2Compression,
		},
		{
			// These messages come every few seconds. They have a stream of their own, so that the server doesn't keep a
			// large block in memory for them.
			Name: layout.StreamOwn, Subjects: crew.Own, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
			MaxBytes: smallBytes, Discard: jetstream.DiscardNew, MaxMsgSize: smallBytes / maxDaemons,
		},
		{
			Name: layout.StreamPosition, Subjects: []string{"position.>"},
			MaxMsgsPerSubject: 1, MaxBytes: smallBytes, AllowDirect: true,
		},
	}
}

// stateSubjects are those of the states, and what fills their blocks.
func stateSubjects(states []string) []string {
	if len(states) == 0 {
		return nil
	}
	return append([]string{layout.FillSubject}, states...)
}

func historySubjects(states []string) []string {
	var subjects []string
	for _, state := range states {
		subjects = append(subjects, layout.HistoryPrefix+state)
	}
	return subjects
}

// errOtherStore is a store whose streams can't be adapted: another version of the bus made it. Nor can the
// embedded server start on it, where there is room for one.
var errOtherStore = errors.New("the bus can't use its store")

// prepareStreams makes the streams, or adapts those of another version of the bus.
func prepareStreams(ctx context.Context, js jetstream.JetStream, crew Crew, l limits) error {
	for _, config := range streamConfigs(crew, l) {
		if len(config.Subjects) == 0 {
			continue
		}
		config.Storage, config.Replicas = jetstream.FileStorage, 1
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			return fmt.Errorf("%w: prepare the stream %s: %w", errOtherStore, config.Name, err)
		}
	}
	return nil
}
