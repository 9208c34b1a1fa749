package embed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

const (
	// roomNeeded is how many bytes must be free before a store that could not be written is opened anew.
	roomNeeded = 1 << 20
	// roomEvery is how often that is looked at.
	roomEvery = time.Second
	// nowhere is a subject that no stream has.
	nowhere = "kubelot-bus-check"
)

// errRoomAgain ends one life of the embedded server for the next.
var errRoomAgain = errors.New("the bus's store is opened anew")

// guard waits for a store that can't be written, as when the disk is full. The server never writes to it again once a write has
// failed; it can be read still, so the server goes on until there is room.
func (s *Server) guard(ctx context.Context, a *admin, trouble <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-trouble:
		}
		err := a.do(ctx, writable)
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.options.Log.Error("the bus can't write its store; what the daemons say is kept again once there is room",
			"store", s.options.StoreDir, "error", err, "hint", "free some space on its file system")
		if s.awaitRoom(ctx) {
			return errRoomAgain
		}
	}
}

// awaitRoom waits until there is space under the store; false when ctx has ended before.
func (s *Server) awaitRoom(ctx context.Context) bool {
	for {
		pause(ctx, roomEvery)
		switch {
		case ctx.Err() != nil:
			return false
		case s.room():
			return true
		}
	}
}

// room tells whether there is space under the store.
func (s *Server) room() bool {
	var fs unix.Statfs_t
	return unix.Statfs(s.options.StoreDir, &fs) != nil || fs.Bavail*uint64(fs.Bsize) >= roomNeeded
}

// writable is an error where a stream has ever failed to write: it answers each purge with that failure.
func writable(ctx context.Context, js jetstream.JetStream) error {
	for _, name := range []string{streamState, streamEvent, streamPosition} {
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
