// Package hop measures the bus of a running crew: how long a message takes from its writer through the store to a
// reader.
//
// Reads: the keys in the crew's run directory, and its own messages. Writes: events of the kind podsync.step about
// a pod that doesn't exist, which nobody but tools reads. Owns: two connections.
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
	// size is that of a common message, such as a small pod's status.
	size = 2000
	// patience is how long the bus may be away.
	patience = time.Minute
)

// uid is the pod's that the messages are about.
const uid = "benchmark"

// Until sends a message each 20 ms over the bus in runDir until ctx ends, and returns how long each took.
func Until(ctx context.Context, runDir string) (measure.Sample, error) {
	writer, err := dial(ctx, runDir, "podsync")
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	reader, err := dial(ctx, runDir, "cli")
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return over(ctx, writer, reader)
}

// over sends messages by one connection and awaits them at the other.
func over(ctx context.Context, writer, reader bus.Transport) (measure.Sample, error) {
	// It lasts until the last message has come, also when ctx ends meanwhile.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	subject := topic.PodStep.Name() + "." + uid
	arrived := reader.WatchEvents(watching, []string{subject}, bus.From{})
	if err := listening(watching, arrived); err != nil {
		return nil, err
	}
	var sample measure.Sample
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
		took, err := send(watching, writer, subject, len(sample), arrived)
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

// listening waits until the reader gets what is sent from now on.
func listening(ctx context.Context, arrived <-chan bus.Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case d := <-arrived:
		if !d.Synced {
			return fmt.Errorf("%s was sent before the measurement", d.Subject)
		}
		return nil
	case <-ctx.Done():
		return errors.New("the bus brings no messages")
	}
}

// send sends message n and waits for it to come.
func send(
	ctx context.Context, writer bus.Transport, subject string, n int, arrived <-chan bus.Delivery,
) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := message(subject, n)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	published := make(chan error, 1)
	go func() { published <- writer.Publish(ctx, m) }()
	for {
		select {
		case d := <-arrived:
			now := time.Now()
			d.Ack()
			if number(d) != n {
				continue
			}
			return now.Sub(begin), <-published
		case <-ctx.Done():
			return 0, fmt.Errorf("message %d has not come: %w", n, ctx.Err())
		}
	}
}

// message is a step that podsync could have made, with its number where the reader finds it.
func message(subject string, n int) (bus.Message, error) {
	step := topic.Step{Name: fmt.Sprint(n), Phase: topic.StepEnd, Error: strings.Repeat("x", size), At: time.Now()}
	step.UID = uid
	data, err := json.Marshal(step)
	if err != nil {
		return bus.Message{}, fmt.Errorf("encode a message: %w", err)
	}
	header := map[string]string{bus.HeaderSchema: fmt.Sprint(topic.PodStep.Schema()), bus.HeaderDaemon: "podsync"}
	return bus.Message{Subject: subject, Header: header, Data: data}, nil
}

// number is the inverse of message; -1 for what isn't one.
func number(d bus.Delivery) int {
	var step topic.Step
	var n int
	if json.Unmarshal(d.Data, &step) != nil {
		return -1
	}
	if _, err := fmt.Sscan(step.Name, &n); err != nil {
		return -1
	}
	return n
}
