package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/test/bench/measure"
)

// Stream is what the bus keeps of some of its topics.
type Stream struct {
	Name     string `json:"name"`
	Messages int64  `json:"messages"`
	Bytes    int64  `json:"bytes"`
	Subjects int64  `json:"subjects"`
	// MaxBytes is where it ends, 0 if nowhere.
	MaxBytes int64 `json:"maxBytes"`
	// History marks a stream that drops its oldest messages at MaxBytes: until then it grows with what happens, and
	// then no more.
	History bool `json:"history"`
	// Files is what it has in the store.
	Files measure.Files `json:"files"`
}

// streams asks the bus about the streams that have a directory in its store, with the rights of the command line.
func (c Crew) streams(ctx context.Context) ([]Stream, error) {
	dirs, err := filepath.Glob(filepath.Join(BusStore(c.RunDir), "jetstream", "*", "streams", "*"))
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	transport, err := nats.Dial(ctx, nats.Options{
		Socket: filepath.Join(c.RunDir, "bus.sock"), KeyFile: filepath.Join(c.RunDir, "keys", "cli.nk"),
		Daemon: "cli", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	defer transport.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, connected := <-transport.Connects(ctx); !connected {
		return nil, fmt.Errorf("the bus doesn't answer: %w", context.Cause(ctx))
	}
	var all []Stream
	for _, dir := range dirs {
		s, err := ask(ctx, transport, filepath.Base(dir))
		if errors.Is(err, bus.ErrDenied) {
			continue // not for everybody's eyes, as the positions of readers are
		}
		if err != nil {
			return nil, err
		}
		if s.Files, err = measure.Count(dir); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func ask(ctx context.Context, transport bus.Transport, name string) (Stream, error) {
	answer, err := transport.Request(ctx, bus.Message{Subject: "$JS.API.STREAM.INFO." + name})
	if err != nil {
		return Stream{}, fmt.Errorf("ask the bus about its stream %s: %w", name, err)
	}
	return parse(name, answer.Data)
}

// parse reads JetStream's answer.
func parse(name string, data []byte) (Stream, error) {
	var info struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
		Config struct {
			MaxBytes int64  `json:"max_bytes"`
			Discard  string `json:"discard"`
		} `json:"config"`
		State struct {
			Messages int64 `json:"messages"`
			Bytes    int64 `json:"bytes"`
			Subjects int64 `json:"num_subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return Stream{}, fmt.Errorf("decode the bus's answer about its stream %s: %w", name, err)
	}
	if info.Error != nil {
		return Stream{}, fmt.Errorf("ask the bus about its stream %s: %s", name, info.Error.Description)
	}
	limit := max(0, info.Config.MaxBytes)
	return Stream{
		Name: name, Messages: info.State.Messages, Bytes: info.State.Bytes, Subjects: info.State.Subjects,
		MaxBytes: limit, History: limit > 0 && info.Config.Discard == "old",
	}, nil
}
