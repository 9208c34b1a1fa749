// Package feed takes what package live needs off a node, or off a recording.
//
// # Reads
//
// Every state and event topic of the bus, /proc, the filesystems of the node's directories, the configuration of the
// daemons that run, where the container runtime has its images, and systemd's counts of restarts.
//
// # Guarantees
//
//   - Nothing is written.
//   - What can't be read leaves a gap in the picture and stops nothing.
//   - The channel is closed when the context has ended, or a recording is over, and every goroutine is gone.
package feed

import (
	"context"
	"sync"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
)

// Options say what is read besides the bus.
type Options struct {
	// RunDir is that of the crew whose processes are read; empty for none.
	RunDir string
	// Since is how much of the bus's history is read first.
	Since time.Duration
	// Every is the pause between two readings of processes and the machine.
	Every time.Duration
}

// Feed is a stream of inputs with the clock that belongs to it.
type Feed struct {
	// Inputs is closed at the end of a recording or of the context.
	Inputs <-chan live.Input
	// Now is the time to make pictures for: the present, or how far a replay is. Any goroutine may call it.
	Now func() time.Time
}

const (
	// askEvery is how often the bus is asked whether it is there, and askPatience how long it may take.
	askEvery, askPatience = 3 * time.Second, 2 * time.Second
	// retainedPatience is how long the reading of all that is retained may take.
	retainedPatience = 15 * time.Second
)

// Node follows a node until ctx ends. It returns at once; that the bus is away is an input.
func Node(ctx context.Context, conn *bus.Conn, o Options) Feed {
	inputs := make(chan live.Input)
	f := &follower{conn: conn, since: time.Now().Add(-max(0, o.Since)), inputs: inputs}
	var all sync.WaitGroup
	all.Go(func() { f.follow(ctx) })
	if o.RunDir != "" {
		all.Go(func() { newReader("/proc", o.RunDir).run(ctx, o.Every, inputs) })
	}
	go func() {
		all.Wait()
		close(inputs)
	}()
	return Feed{Inputs: inputs, Now: time.Now}
}

// follower follows the bus.
type follower struct {
	conn   *bus.Conn
	since  time.Time
	inputs chan<- live.Input
	link   live.Link
	// events are the messages as they pass; nil before the first reading of what is retained.
	events <-chan bus.Delivery
	// unread is true while what is retained is to be read, since the bus came or came back.
	unread bool
}

// follow ends with ctx and waits for the goroutine that it starts.
func (f *follower) follow(ctx context.Context) {
	answers := make(chan error)
	var asking sync.WaitGroup
	asking.Go(func() { f.ask(ctx, answers) })
	defer asking.Wait()
	connects := f.conn.Transport().Connects(ctx)
	f.unread = true
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case _, ok := <-connects:
			if !ok {
				return
			}
			f.unread = true
			err = f.read(ctx)
		case err = <-answers:
			if err == nil && f.unread {
				err = f.read(ctx)
			}
		case d, ok := <-f.events:
			if !ok {
				return
			}
			if d.Synced {
				f.send(ctx, live.Input{HistoryRead: true})
			} else {
				f.send(ctx, live.Input{Message: &d.Message})
			}
			d.Ack()
			continue
		}
		f.say(ctx, err)
	}
}

// ask asks the bus for one small value again and again. A connection that is lost isn't reported otherwise.
func (f *follower) ask(ctx context.Context, answers chan<- error) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, askPatience)
		_, err := topic.NodeShutdown.Read(limited, f.conn)
		cancel()
		select {
		case answers <- err:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// say makes known that the bus answers or doesn't, where that has changed.
func (f *follower) say(ctx context.Context, err error) {
	link := live.Link{Up: err == nil, Since: time.Now()}
	if err != nil {
		link.Problem = "the bus doesn't answer: is the crew running? (systemctl status kubelot-bus)"
	}
	if link.Up == f.link.Up && !f.link.Since.IsZero() {
		return
	}
	f.link = link
	f.send(ctx, live.Input{Link: &link})
}

// read reads what is retained, and begins to follow the messages.
func (f *follower) read(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, retainedPatience)
	defer cancel()
	at := time.Now()
	var retained []bus.Message
	synced := false
	for d := range f.conn.Transport().WatchState(limited, filters(bus.KindState)) {
		if synced = d.Synced; synced {
			break
		}
		retained = append(retained, d.Message)
	}
	if !synced {
		return context.Cause(limited)
	}
	f.unread = false
	f.send(ctx, live.Input{Retained: retained, RetainedAt: at})
	if f.events == nil {
		f.events = f.conn.Transport().WatchEvents(ctx, filters(bus.KindState, bus.KindEvent), bus.From{Since: f.since})
	}
	return nil
}

func (f *follower) send(ctx context.Context, in live.Input) {
	select {
	case f.inputs <- in:
	case <-ctx.Done():
	}
}

// filters are the subject patterns of all topics of the kinds.
func filters(kinds ...bus.Kind) []string {
	var patterns []string
	for _, t := range topic.All() {
		for _, kind := range kinds {
			if t.Kind() == kind {
				patterns = append(patterns, bus.Filter(t))
			}
		}
	}
	return patterns
}
