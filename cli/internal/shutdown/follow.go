package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// Text describes the progress of a shutdown in a few lines.
func Text(s topic.Shutdown, now time.Time) string {
	var b strings.Builder
	switch {
	case !s.Active:
		b.WriteString("The node isn't shutting down.")
		if !s.Started.IsZero() {
			fmt.Fprintf(&b, " The last shutdown began %s ago and was cancelled.", words.Age(now.Sub(s.Started)))
		}
		return b.String() + "\n"
	case !s.Done.IsZero():
		fmt.Fprintf(&b, "The node's pods have ended, and the machine may shut down. It took %s.\n",
			words.Brief(s.Done.Sub(s.Started)))
	default:
		fmt.Fprintf(&b, "The node has been shutting down for %s: %s.\n", words.Age(now.Sub(s.Started)), Step(s))
	}
	if s.Message != "" {
		fmt.Fprintf(&b, "Not done: %s.\n", words.OneLine(s.Message))
	}
	fmt.Fprintf(&b, "It was started by %s. To admit pods again, run kubelot shutdown cancel.\n", beginner(s))
	return b.String()
}

func beginner(s topic.Shutdown) string {
	if s.Trigger == topic.ByLogind {
		return "logind, because the machine shuts down"
	}
	return "a command"
}

// Step describes the current step of a shutdown.
func Step(s topic.Shutdown) string {
	switch {
	case !s.Done.IsZero():
		return "done"
	case s.Group >= len(s.Groups):
		return "all groups have ended; waiting until the API server has the pods' statuses"
	}
	g := s.Groups[s.Group]
	return fmt.Sprintf("group %d of %d ends (priority %d or higher, within %d s)", s.Group+1, len(s.Groups), g.Priority,
		g.GracePeriodSeconds)
}

// errCancelled says that the shutdown was cancelled while Follow followed it.
var errCancelled = errors.New("the shutdown was cancelled")

// Follow writes each step of the shutdown that began at started, until it is done, and returns how it is then.
func Follow(ctx context.Context, conn *bus.Conn, started time.Time, out io.Writer) (topic.Shutdown, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := topic.NodeShutdown.Watch(ctx, conn)
	if err != nil {
		return topic.Shutdown{}, err
	}
	last := ""
	for c := range changes {
		s := c.Value
		switch {
		case c.Synced || c.Deleted || s.Started.Before(started):
			continue // it belongs to an earlier shutdown
		case !s.Active:
			return s, errCancelled
		}
		if step := Step(s); step != last {
			last = step
			if _, err := fmt.Fprintln(out, step); err != nil {
				return s, err
			}
		}
		if !s.Done.IsZero() {
			if s.Message != "" {
				_, err = fmt.Fprintf(out, "not done: %s\n", words.OneLine(s.Message))
			}
			return s, err
		}
	}
	return topic.Shutdown{}, context.Cause(ctx)
}
