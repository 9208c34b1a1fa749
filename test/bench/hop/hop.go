// Package hop measures the bus of a running crew: how long a message takes from its writer through the store to a
// reader.
//
// Reads: the keys in the crew's run directory, and its own messages. Writes: events of the kind podsync.step about
// a pod that doesn't exist, which nobody but tools reads, or a key of volume.state about it, which podsync and stats
// keep and don't use, and which it removes in the end. Owns: two connections.
//
// Guarantees: a message that waits counts as long as it waits; the next is sent after it has come.
package hop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
	"kubelot.dev/test/bench/measure"
)

const (
	every = 20 * time.Millisecond
	// patience is how long the bus may be away.
	patience = time.Minute
	// uid is the pod's that the messages are about.
	uid = "benchmark"
)

// filling gives a message the size of a common one, such as a small pod's status.
var filling = strings.Repeat("x", 2000)

// Path is the way of the messages: what they are, and so the stream of the bus's store that keeps them.
type Path struct {
	writer string // the daemon whose topic it is
	topic  bus.Topic
	read   func(ctx context.Context, reader bus.Transport, subject string) <-chan bus.Delivery
	// message is the payload with the number n, and number finds it.
	message func(n int) any
	number  func(data []byte) (text string, err error)
}

var (
	// Event is the way of events, which are kept in the order in which they came.
	Event = Path{
		writer: "podsync", topic: topic.PodStep,
		read: func(ctx context.Context, reader bus.Transport, subject string) <-chan bus.Delivery {
			return reader.WatchEvents(ctx, []string{subject}, bus.From{})
		},
		message: func(n int) any {
			step := topic.Step{Name: fmt.Sprint(n), Phase: topic.StepEnd, Error: filling, At: time.Now()}
			step.UID = uid
			return step
		},
		number: func(data []byte) (string, error) {
			var step topic.Step
			err := json.Unmarshal(data, &step)
			return step.Name, err
		},
	}
	// State is the way of the states, of which the last value of each key is kept: there the bus drops tombstones that
	// have expired, begins new blocks and compacts the old ones.
	State = Path{
		writer: "volume", topic: topic.VolumeState,
		read: func(ctx context.Context, reader bus.Transport, subject string) <-chan bus.Delivery {
			return reader.WatchState(ctx, []string{subject})
		},
		message: func(n int) any {
			volume := topic.Volume{Phase: topic.VolumePending, Message: filling}
			return topic.PodVolumes{
				Ref: topic.Ref{Name: fmt.Sprint(n), UID: uid}, Phase: topic.VolumePending,
				Volumes: map[string]topic.Volume{"benchmark": volume},
			}
		},
		number: func(data []byte) (string, error) {
			var volumes topic.PodVolumes
			err := json.Unmarshal(data, &volumes)
			return volumes.Name, err
		},
	}
)

// Until sends a message each 20 ms over the bus in runDir until ctx ends, and returns how long each took.
func Until(ctx context.Context, runDir string, by Path) (measure.Sample, error) {
	writer, err := dial(ctx, runDir, by.writer)
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	reader, err := dial(ctx, runDir, "cli")
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return by.over(ctx, writer, reader)
}

// over sends messages by one connection and awaits them at the other. What it leaves of a state is a tombstone.
func (p Path) over(ctx context.Context, writer, reader bus.Transport) (sample measure.Sample, err error) {
	// It lasts until the last message has come, also when ctx ends meanwhile.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	arrived := p.read(watching, reader, p.subject())
	if err := listening(watching, arrived); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.remove(watching, writer)) }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return sample, nil
		case <-tick.C:
		}
		// Both can be ready after a long hop.
		if ctx.Err() != nil {
			return sample, nil
		}
		took, err := p.send(watching, writer, len(sample), arrived)
		if err != nil {
			return sample, err
		}
		sample = append(sample, took)
	}
}

func dial(ctx context.Context, runDir, member string) (bus.Transport, error) {
	transport, err := nats.Dial(ctx, nats.Options{
		Socket: filepath.Join(runDir, "bus.sock"), KeyFile: filepath.Join(runDir, "keys", member+".nk"),
		Daemon: member, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, ok := <-transport.Connects(limited); !ok {
		transport.Close()
		return nil, fmt.Errorf("connect to the bus in %s as %s: waited %v", runDir, member, patience)
	}
	return transport, nil
}

// listening waits until the reader gets what is sent from now on. What an earlier measurement has left comes before.
func listening(ctx context.Context, arrived <-chan bus.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case d := <-arrived:
			d.Ack()
			if d.Synced {
				return nil
			}
		case <-ctx.Done():
			return errors.New("the bus brings no messages")
		}
	}
}

// send sends message n and waits for it to come.
func (p Path) send(
	ctx context.Context, writer bus.Transport, n int, arrived <-chan bus.Delivery,
) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err := json.Marshal(p.message(n))
	if err != nil {
		return 0, fmt.Errorf("encode a message: %w", err)
	}
	m := bus.Message{Subject: p.subject(), Header: p.header(), Data: data}
	begin := time.Now()
	published := make(chan error, 1)
	go func() { published <- writer.Publish(ctx, m) }()
	for {
		select {
		case d := <-arrived:
			now := time.Now()
			d.Ack()
			if text, err := p.number(d.Data); err != nil || text != fmt.Sprint(n) {
				continue
			}
			return now.Sub(begin), <-published
		case <-ctx.Done():
			return 0, fmt.Errorf("message %d has not come: %w", n, ctx.Err())
		}
	}
}

// remove ends the key of a state.
func (p Path) remove(ctx context.Context, writer bus.Transport) error {
	if p.topic.Kind() != bus.KindState {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m := bus.Message{Subject: p.subject(), Header: p.header()}
	m.Header[bus.HeaderTombstone] = "1"
	return writer.Publish(ctx, m)
}

func (p Path) subject() string { return p.topic.Name() + "." + uid }

func (p Path) header() map[string]string {
	return map[string]string{bus.HeaderSchema: fmt.Sprint(p.topic.Schema()), bus.HeaderDaemon: p.writer}
}
