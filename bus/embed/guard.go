package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus/internal/layout"
	"kubelot.dev/bus/pause"
)

const (
	// roomNeeded is how many bytes must be free before a store that could not be written is opened again, because then
	// every writer sends all its values again. On a small file system it is 1/roomShare of it.
	roomNeeded, roomShare = 16 << 20, 4
	// inodesNeeded is how many files must be possible, where the file system counts them.
	inodesNeeded = 64
	// trialSize is how much is written to see whether that can be done.
	trialSize = 256 << 10
	// roomEvery is how often that is looked at.
	roomEvery = time.Second
	// paceMax bounds the pause before the store is opened again. The pause doubles each time. After paceQuiet without
	// a failure it begins with roomEvery again.
	paceMax, paceQuiet = time.Minute, time.Minute
	// nowhere is a subject that no stream has.
	nowhere = "kubelot-bus-check"
)

// errRoomAgain ends one life of the embedded server for the next.
var errRoomAgain = errors.New("the bus's store is opened again")

// guard waits until the store can't be written, for example because the disk is full. After a failed write the server
// never writes to the store again. It can still be read, so the server continues until there is room.
func (s *Server) guard(ctx context.Context, a *admin, log *natsLog) error {
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-log.trouble:
		}
		err := a.do(ctx, writable)
		if !a.server.JetStreamEnabled() {
			err = jetstream.ErrJetStreamNotEnabled // it has turned itself off, and answers nothing
		}
		switch {
		case ctx.Err() != nil:
		case broken(err):
			s.options.Log.Error("the bus can't write its store; it stores messages again once there is space",
				"store", s.options.StoreDir, "error", err, "hint", "free some space on its file system")
			s.options.Told(err)
			if s.awaitRoom(ctx, s.pace.next(time.Since(began))) {
				return errRoomAgain
			}
		case err != nil:
			s.options.Log.Debug("can't inspect the bus's store, retrying", "error", err)
			log.signal()
		}
		pause.For(ctx, roomEvery) // bounds what a client costs that keeps on doing what it may not
	}
}

// pace is the pause before the last opening of the store.
type pace time.Duration

// next is the pause before the next opening, after all was well for that long.
func (p *pace) next(well time.Duration) time.Duration {
	if well >= paceQuiet {
		*p = 0
	}
	*p = min(max(2*(*p), pace(roomEvery)), pace(paceMax))
	return time.Duration(*p)
}

// awaitRoom waits until there is space under the store, and for the pause first; false when ctx has ended before.
func (s *Server) awaitRoom(ctx context.Context, first time.Duration) bool {
	for wait := first; ; wait = roomEvery {
		pause.For(ctx, wait)
		switch {
		case ctx.Err() != nil:
			return false
		case room(s.options.StoreDir):
			return true
		}
	}
}

// room reports whether there is space under the store, and whether it can be used: a file system may be read-only, or
// have a quota.
func room(store string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(store, &fs) == nil {
		needed := min(roomNeeded/uint64(fs.Bsize), fs.Blocks/roomShare)
		if fs.Bavail < needed || fs.Files > 0 && fs.Ffree < inodesNeeded {
			return false
		}
	}
	return tried(store)
}

// tried reports whether some kilobytes can be written under the store.
func tried(store string) bool {
	trial := filepath.Join(store, "trial")
	return errors.Join(os.WriteFile(trial, make([]byte, trialSize), 0o600), os.Remove(trial)) == nil
}

// broken reports whether the server has answered that it can't write. No answer says nothing about the store, because
// the machine may be busy.
func broken(err error) bool {
	var answer *jetstream.APIError
	return errors.As(err, &answer)
}

// writable is an error where a stream has ever failed to write: it answers each purge with that failure.
func writable(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{
		layout.StreamState, layout.StreamOwn, layout.StreamHistory, layout.StreamEvent,
		layout.StreamPosition,
	} {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // the crew has no such topics
		}
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(nowhere))
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}
