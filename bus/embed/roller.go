package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/internal/layout"
	"kubelot.dev/bus/pause"
)

const (
	// rollEvery is how often the bus looks whether its states have come to rest.
	rollEvery = 20 * time.Second
	// rollBytes is how large the last block of the states must be, and how much of their files must be unused, to be
	// worth it.
	rollBytes = 1 << 20
	// blockBytes is the size at which the server begins another block at the latest. It is 4 MiB for streams of less
	// than 32 MiB.
	blockBytes = 8 << 20
	// fillBytes is the size of the messages that fill a block up.
	fillBytes = 256 << 10
)

// roller has the server begin a new block for the states when a burst is over. The server works on whole blocks: one
// message loads the last one into memory, and it never compacts the last one, however little of it is still in use.
// It begins another only when the last one is full, so the roller fills it up with messages that it removes at once.
type roller struct {
	dir   string // with the blocks of the states
	limit int64  // of the states
	log   *slog.Logger
	seen  blocks
}

// blocks are the files of a stream.
type blocks struct {
	all, last int64 // bytes
	index     int   // of the last block
}

// roll looks after the states until ctx ends.
func (s *Server) roll(ctx context.Context, own *admin, limit int64) {
	r := &roller{
		dir:   filepath.Join(s.options.StoreDir, "jetstream", "$G", "streams", layout.StreamState, "msgs"),
		limit: limit, log: s.options.Log,
	}
	for {
		pause.For(ctx, cmp.Or(s.options.rollEvery, rollEvery))
		if ctx.Err() != nil {
			return
		}
		now := r.look()
		rested := now == r.seen
		r.seen = now
		if !rested || now.last < rollBytes {
			continue
		}
		if err := own.do(ctx, r.fill); err != nil && ctx.Err() == nil {
			r.log.Debug("the last block of the states stays", "error", err)
		}
	}
}

// look reads the sizes of the blocks. What can't be read counts as nothing: a block may be replaced meanwhile.
func (r *roller) look() blocks {
	var found blocks
	entries, err := os.ReadDir(r.dir)
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

// fill fills the last block up, unless most of the files is in use, or the store is so full that it would take the
// place of what others say.
func (r *roller) fill(ctx context.Context, js jetstream.JetStream) error {
	stream, err := js.Stream(ctx, layout.StreamState)
	if err != nil {
		return fmt.Errorf("look at the states: %w", err)
	}
	used := int64(stream.CachedInfo().State.Bytes)
	if r.seen.all-used < rollBytes || used > r.limit/2-blockBytes {
		return nil
	}
	last := uint64(0)
	for filled := r.seen.last; filled <= blockBytes && r.look().index == r.seen.index; filled += fillBytes {
		m := nats.NewMsg(layout.FillSubject)
		m.Data = make([]byte, fillBytes)
		// Should the bus end before it removes the message, the server does.
		ack, err := js.PublishMsg(ctx, m, jetstream.WithMsgTTL(time.Minute))
		if err != nil {
			return errors.Join(fmt.Errorf("fill the last block of the states: %w", err), unfill(ctx, stream, last))
		}
		last = ack.Sequence
	}
	return unfill(ctx, stream, last)
}

// unfill removes the message of that number, if there is one.
func unfill(ctx context.Context, stream jetstream.Stream, sequence uint64) error {
	if sequence == 0 {
		return nil
	}
	if err := stream.DeleteMsg(ctx, sequence); err != nil {
		return fmt.Errorf("remove what filled the last block of the states: %w", err)
	}
	return nil
}
