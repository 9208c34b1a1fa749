package embed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

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
	// state bounds the states: beyond it no keys are taken, and with reserveOf it no value at all.
	state int64
	// history bounds the old values of states, event the events; the oldest go first.
	history, event int64
}

const (
	// minState and maxState bound the limit of the states. The store is on a tmpfs and counts as memory of the bus, so all
	// of it is at most half of MemoryHigh of kubelot-bus.service; the other half is for what the process itself needs.
	minState, maxState = 16 << 20, 128 << 20
	// maxStore is for all streams together, and bounds nothing: each has a limit of its own. The server adapts no stream
	// while all together may have more, and those of an earlier bus may have had larger limits.
	maxStore = 4 << 30
)

// space is what there is under the store, in bytes.
type space struct {
	all, free int64 // of the file system; all is 0 where it has no size
	states    int64 // the files of the states, which an earlier bus has left
}

// limitsFor derives the limits from the space under the store. What others use of the file system doesn't
// count, and the states never have more than half of it. The limit isn't lower than what they take already, so that
// those can still change, nor than a floor, for which there may be no room: then the guard waits for room. The history
// of a pod is compressed to a fifth of its size.
func limitsFor(s space) limits {
	least := int64(minState)
	if s.all > 0 {
		least = min(least, s.all/2)
	}
	state := clamp(max((s.free+s.states)/4, s.states), least, clamp(s.all/4, least, maxState))
	return limits{
		state:   state,
		history: clamp(s.all/40, 2<<20, 5<<20), event: clamp(s.all/80, 1<<20, 2<<20),
	}
}

// reserveOf is what a full store has beside the limit of the states, for what makes room.
func reserveOf(limit int64) int64 { return limit / 8 }

func clamp(n, low, high int64) int64 { return min(max(n, low), high) }

// spaceOf is the space under the store.
func spaceOf(store string) (space, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(store, &fs); err != nil {
		return space{}, fmt.Errorf("read the size of the file system under the bus's store %s: %w", store, err)
	}
	states := look(blockDir(store, layout.StreamState)).all
	return space{int64(fs.Blocks) * fs.Bsize, int64(fs.Bavail) * fs.Bsize, states}, nil
}

// streamConfigs are the streams.
func streamConfigs(crew Crew, l limits) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			// A tombstone carries the time for which it is kept (Nats-TTL). There must be only one message per subject:
			// otherwise an older value would be the last one again once the tombstone has gone.
			Name: layout.StreamState, Subjects: filled(layout.StreamState, crew.State),
			MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
			MaxBytes: l.state, Discard: jetstream.DiscardNew, // see replacer
		},
		{
			Name: layout.StreamHistory, Subjects: filled(layout.StreamHistory, historySubjects(crew.State)),
			MaxBytes: l.history, MaxAge: maxEventAge, Compression: jetstream.S2Compression,
		},
		{
			Name: layout.StreamEvent, Subjects: filled(layout.StreamEvent, crew.Event),
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

// filled are the subjects of a stream, and that of what fills its blocks.
func filled(stream string, subjects []string) []string {
	if len(subjects) == 0 {
		return nil
	}
	return append([]string{layout.FillPrefix + stream}, subjects...)
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
