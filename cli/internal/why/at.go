package why

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// TimeOf is the time that a text names: how long ago (10m) or a time of day with its date (RFC 3339). It is now if the
// text is empty, and never later.
func TimeOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if then, err := time.Parse(time.RFC3339, text); err == nil && !then.After(now) {
		return then, nil
	}
	return now, fmt.Errorf("--at %q: want how long ago, such as 10m, or a time in the past, such as 2026-11-20T12:00:00Z",
		text)
}

// ReadAt is Read for an earlier time, as far back as the bus keeps what was said. Of a daemon's health the bus keeps
// only the last word: a daemon that has changed since then counts as healthy at the time.
func ReadAt(ctx context.Context, conn *bus.Conn, at, now time.Time) (Snapshot, error) {
	w, err := Read(ctx, conn)
	if err != nil {
		return w, err
	}
	ctx, cancel := soon(ctx)
	defer cancel()
	past, err := readPast(ctx, conn.Transport(), at)
	if err != nil {
		return w, err
	}
	if past.begins.IsZero() {
		return w, errors.New("the bus gives no history: ask again, or without --at")
	}
	if past.begins.After(at) {
		return w, fmt.Errorf("the bus's history begins %s ago, at %s: ask for a later time",
			words.Age(now.Sub(past.begins)), past.begins.UTC().Format(time.RFC3339))
	}
	past.into(&w)
	for name, h := range w.Healths {
		if h.Since.After(at) {
			h.State, h.Message = topic.Healthy, ""
		}
		h.Beat = at
		if h.Started.After(at) {
			h.Started = time.Time{}
		}
		w.Healths[name] = h
	}
	w.Steps = slices.DeleteFunc(w.Steps, func(s topic.Step) bool { return s.At.After(at) })
	w.Events = slices.DeleteFunc(w.Events, func(e topic.Event) bool { return e.At.After(at) })
	w.Decisions = slices.DeleteFunc(w.Decisions, func(d topic.Decision) bool { return d.At.After(at) })
	return w, nil
}

// past is what was stated at a time: the last message of each subject before it.
type past struct {
	messages map[string]bus.Message
	// begins is the time of the oldest message that is kept.
	begins time.Time
}

// states are the topics of a Snapshot that the bus keeps the history of.
var states = []bus.Topic{
	topic.PodSources, topic.PodUpdate, topic.MergedStatus, topic.StatusPatch, topic.PLEGEvent, topic.ProbeResult,
	topic.VolumeState, topic.PodAllocation, topic.NodeRuntime, topic.NodeObject, topic.NodePressure, topic.NodeShutdown,
}

func readPast(ctx context.Context, transport bus.Transport, at time.Time) (past, error) {
	p := past{messages: map[string]bus.Message{}}
	filters := make([]string, 0, len(states))
	for _, t := range states {
		filters = append(filters, bus.Filter(t))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What has not changed since the beginning of the history is among the retained values only.
	for d := range transport.WatchState(ctx, filters) {
		if d.Synced {
			break
		}
		p.take(d.Message, at)
	}
	kept := transport.WatchEvents(ctx, filters, bus.From{Since: time.Unix(0, 0)})
	for d := range kept {
		if d.Synced {
			break
		}
		if p.begins.IsZero() {
			p.begins = d.Time
		}
		if d.Time.After(at) { // they come in the order of their times
			break
		}
		p.take(d.Message, at)
	}
	return p, context.Cause(ctx)
}

// take keeps the message if it is the last of its subject before the time.
func (p *past) take(m bus.Message, at time.Time) {
	if before, ok := p.messages[m.Subject]; !m.Time.After(at) && (!ok || !m.Time.Before(before.Time)) {
		p.messages[m.Subject] = m
	}
}

// into replaces what the snapshot has of the present by what was stated then.
func (p past) into(w *Snapshot) {
	w.Sources = stated(p, topic.PodSources)[""]
	w.Updates, w.Merged = stated(p, topic.PodUpdate), stated(p, topic.MergedStatus)
	w.Statuses, w.Observations = stated(p, topic.StatusPatch), stated(p, topic.PLEGEvent)
	w.Probes, w.Volumes = stated(p, topic.ProbeResult), stated(p, topic.VolumeState)
	w.Allocations = stated(p, topic.PodAllocation)
	w.Runtime, w.Node = stated(p, topic.NodeRuntime)[""], stated(p, topic.NodeObject)[""]
	w.Pressure, w.Shutdown = stated(p, topic.NodePressure)[""], stated(p, topic.NodeShutdown)[""]
}

// stated are the topic's values by their keys. What can't be decoded, such as a message of another release, is left
// out.
func stated[T any](p past, t bus.State[T]) map[string]T {
	values := map[string]T{}
	for subject, m := range p.messages {
		rest, ok := strings.CutPrefix(subject, t.Name())
		key, dotted := strings.CutPrefix(rest, ".")
		if !ok || m.Tombstone() || dotted == (t.Keys() == "") || rest != "" && !dotted {
			continue
		}
		schema := m.Header[bus.HeaderSchema]
		var value T
		if schema != "" && schema != strconv.Itoa(t.Schema()) || json.Unmarshal(m.Data, &value) != nil {
			continue
		}
		values[key] = value
	}
	return values
}
