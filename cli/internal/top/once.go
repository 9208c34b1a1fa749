package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/feed"
)

// onceReadings is how many readings of processes a rate of CPU needs.
const onceReadings = 2

// Once takes one picture: when all that is retained and the history are read and CPU rates are known. Without the
// history the picture would lack parts of starts and restarts, so that is an error when the patience ends. Of a
// recording it is the last picture.
func Once(ctx context.Context, f feed.Feed, patience time.Duration) (live.Picture, error) {
	model := live.New()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var r reading
	for {
		late := false
		select {
		case <-ctx.Done():
			return live.Picture{}, context.Cause(ctx)
		case in, ok := <-f.Inputs:
			if !ok {
				return model.Picture(f.Now()), nil
			}
			model.Take(in)
			r.take(in)
		case <-timer.C:
			late = true
		}
		if late && !r.synced {
			return live.Picture{}, fmt.Errorf("the bus has not said within %s how things stand: kubelot doctor", patience)
		}
		if late && !r.history {
			return live.Picture{}, fmt.Errorf("the bus has not given its whole history within %s: is the node overloaded? "+
				"See kubelot doctor", patience)
		}
		if late || r.complete() {
			return model.Picture(f.Now()), nil
		}
	}
}

// reading is how far Once has read.
type reading struct {
	processes int  // readings of the processes
	synced    bool // all that is retained has been read
	history   bool // and the history
}

func (r *reading) take(in live.Input) {
	if in.Processes != nil {
		r.processes++
	}
	r.synced = r.synced || !in.RetainedAt.IsZero()
	r.history = r.history || in.HistoryRead
}

// complete reports whether everything that a picture needs has been read.
func (r *reading) complete() bool {
	return r.synced && r.history && r.processes >= onceReadings
}

// Text draws everything as plain text for a script or a log: no line is cut.
func Text(p live.Picture) string {
	const wide = 1 << 14
	var out strings.Builder
	section := func(lines ...string) {
		for _, line := range lines {
			out.WriteString(strings.TrimRight(ansi.Strip(line), " "))
			out.WriteByte('\n')
		}
	}
	list := func(t table) {
		section(t.header(wide))
		section(t.lines(wide, 0, len(t.rows), "")...)
		section("")
	}
	list(daemonTable(p.Daemons))
	list(podTable(p.Pods, p.At, false))
	list(podTable(p.Pods, p.At, true))
	section(nodeLines(p, wide)...)
	return out.String()
}
