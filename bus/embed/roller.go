package embed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/internal/layout"
	"kubelot.dev/bus/pause"
)

const (
	// rollEvery is how often the bus looks whether its streams have come to rest.
	rollEvery = 20 * time.Second
	// calmBytes is how much the last block of a stream at rest may grow by between two looks. The server notes each
	// tombstone that expires with 30 bytes, so what follows a burst of a hundred pods is some 20 kB.
	calmBytes = 64 << 10
	// rollBytes is how large the last block of a stream must be, and how much of the states' files must be unused, to be
	// worth it.
	rollBytes = 1 << 20
	// blockBytes is the size at which the server begins another block at the latest. It is 4 MiB for streams of less
	// than 32 MiB.
	blockBytes = 8 << 20
	// fillBytes is the size of the messages that fill a block up. Full histories give up that much.
	fillBytes = 128 << 10
)

// roller has the server begin a new block for a stream when a burst is over. The server works on whole blocks: one
// message loads the last one into memory, and it never compacts or compresses the last one, however little of it is
// still in use. It begins another only when the last one is full, so the roller fills it up with messages that it
// removes at once.
type roller struct {
	stream string
	dir    string // with the blocks
	// states is the limit of a stream that isn't compressed; nil for others.
	states *bound
	log    *slog.Logger
	seen   blocks
	// used are the blocks of which nothing is to be gained, until they change.
	used blocks
}

// blocks are the files of a stream.
type blocks struct {
	all, last int64 // bytes
	index     int   // of the last block
}

// roll looks after the states and the histories until ctx ends, and after the limit of the states.
func (s *Server) roll(ctx context.Context, own *admin, states *bound) {
	rollers := []*roller{
		{stream: layout.StreamState, states: states}, {stream: layout.StreamHistory}, {stream: layout.StreamEvent},
	}
	for _, r := range rollers {
		r.dir, r.log = blockDir(s.options.StoreDir, r.stream), s.options.Log
	}
	for {
		pause.For(ctx, cmp.Or(s.options.rollEvery, rollEvery))
		if ctx.Err() != nil {
			return
		}
		if err := states.follow(ctx, s.options.StoreDir, own, s.options.Log); err != nil && ctx.Err() == nil {
			s.options.Log.Debug("the limit of the states stays", "error", err)
		}
		for _, r := range rollers {
			if !r.rested() || !room(s.options.StoreDir) {
				continue
			}
			if err := own.do(ctx, r.fill); err != nil && ctx.Err() == nil {
				r.log.Debug("the last block of a stream stays", "stream", r.stream, "error", err)
			}
		}
	}
}

// rested reports whether next to nothing was written since the last look, and the last block is large.
func (r *roller) rested() bool {
	now := look(r.dir)
	grown := now.last - r.seen.last
	rested := now.index == r.seen.index && grown >= 0 && grown < calmBytes
	r.seen = now
	return rested && now.last >= rollBytes && now != r.used
}

// blockDir has the blocks of the stream.
func blockDir(store, stream string) string {
	return filepath.Join(store, "jetstream", "$G", "streams", stream, "msgs")
}

// look reads the sizes of the blocks. What can't be read counts as nothing: a block may be replaced meanwhile.
func look(dir string) blocks {
	var found blocks
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found
	}
	for _, entry := range entries {
		index, err := strconv.Atoi(strings.TrimSuffix(entry.Name(), ".blk"))
		if err != nil {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			continue
		}
		found.all += info.Size()
		if index >= found.index {
			found.index, found.last = index, info.Size()
		}
	}
	return found
}

// fill fills the last block up, unless most of the states' files is in use, or the states are so close to their limit
// that it would take the place of what others say.
func (r *roller) fill(ctx context.Context, js jetstream.JetStream) error {
	stream, err := js.Stream(ctx, r.stream)
	if err != nil {
		return fmt.Errorf("look at the stream %s: %w", r.stream, err)
	}
	if used := int64(stream.CachedInfo().State.Bytes); r.states != nil &&
		(r.seen.all-used < rollBytes || used > r.states.limit.Load()-rollBytes) {
		r.used = r.seen
		return nil
	}
	for filled := r.seen.last; filled <= blockBytes && look(r.dir).index == r.seen.index; filled += fillBytes {
		ack, err := js.Publish(ctx, layout.FillPrefix+r.stream, make([]byte, fillBytes))
		if err == nil {
			err = stream.DeleteMsg(ctx, ack.Sequence)
		}
		if err != nil {
			return fmt.Errorf("fill the last block of the stream %s: %w", r.stream, err)
		}
	}
	return nil
}
