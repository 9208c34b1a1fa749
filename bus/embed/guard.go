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
)

const (
	// roomNeeded is how many bytes must be free before a store that could not be written is opened anew: every writer says all it knows
	// again then. Of a file system that is small itself, roomShare of it.
	roomNeeded, roomShare = 16 << 20, 4
	// inodesNeeded is how many files must be possible, where the file system counts them.
	inodesNeeded = 64
	// trialSize is how much is written to see whether that can be done.
	trialSize = 256 << 10
	// roomEvery is how often that is looked at.
	roomEvery = time.Second
	// paceMax bounds the pause before the store is opened anew, which doubles from one time to the next; paceQuiet is how long all must have
	// been well before it begins again with roomEvery.
	paceMax, paceQuiet = time.Minute, time.Minute
	// nowhere is a subject that no stream has.
	nowhere = "kubelot-bus-check"
)

// errRoomAgain ends one life of the embedded server for the next.
var errRoomAgain = errors.New("the bus's store is opened anew")

// guard waits for a store that can't be written, as when the disk is full. The server never writes to it again once a write has
// failed; it can be read still, so the server goes on until there is room.
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
			s.options.Log.Error("the bus can't write its store; what the daemons say is kept again once there is room",
				"store", s.options.StoreDir, "error", err, "hint", "free some space on its file system")
			s.options.Told(err)
			if s.awaitRoom(ctx, s.pace.next(time.Since(began))) {
				return errRoomAgain
			}
		case err != nil:
			s.options.Log.Debug("the bus's store can't be looked at, trying again", "error", err)
			log.signal()
		}
		pause(ctx, roomEvery) // a client that does all the time what it may not costs no more than this
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
		pause(ctx, wait)
		switch {
		case ctx.Err() != nil:
			return false
		case room(s.options.StoreDir):
			return true
		}
	}
}

// room tells whether there is space under the store, and whether it can be used: a file system may be read-only, or have a quota.
func room(store string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(store, &fs) == nil {
		needed := min(roomNeeded/uint64(fs.Bsize), fs.Blocks/roomShare)
		if fs.Bavail < needed || fs.Files > 0 && fs.Ffree < inodesNeeded {
			return false
		}
	}
	trial := filepath.Join(store, "trial")
	return errors.Join(os.WriteFile(trial, make([]byte, trialSize), 0o600), os.Remove(trial)) == nil
}

// broken tells whether the server has answered that it can't write. That it hasn't answered says nothing of its store: the machine may be
// busy.
func broken(err error) bool {
	var answer *jetstream.APIError
	return errors.As(err, &answer)
}

// writable is an error where a stream has ever failed to write: it answers each purge with that failure.
func writable(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{streamState, streamOwn, streamHistory, streamEvent, streamPosition} {
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
