package top

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"kubelot.dev/cli/internal/tap"
	"kubelot.dev/cli/internal/words"
)

const (
	// tailBytes is how much of the end of a log is shown, tailLines how many lines of the journal.
	tailBytes = 128 << 10
	tailLines = "500"
	// logEvery is the pause between two looks at a log.
	logEvery = time.Second
)

// desk opens what panes show: all that isn't in the picture.
type desk struct {
	ctx context.Context
	// watch has the shots answer for a pod; "" for none.
	watch   func(uid string)
	sources Sources
	// panes is how many there were.
	panes int
	// running are the goroutines of panes.
	running *sync.WaitGroup
}

// Sources are where panes get their texts from. A nil one says that there is none.
type Sources struct {
	// Tap writes the messages that the filter lets through as lines, until ctx ends.
	Tap func(ctx context.Context, f tap.Filter, out io.Writer) error
	// Journal writes what journalctl says.
	Journal func(ctx context.Context, out io.Writer, args ...string) error
	// Files says that the pods' logs are on this machine.
	Files bool
}

// tap runs a tap for the pane, and waits for its lines.
func (d *desk) tap(p *pane, f tap.Filter) tea.Cmd {
	if d.sources.Tap == nil {
		return gone(p.id, "there is no bus to tap")
	}
	lines, failed := make(chan string, 64), make(chan error, 1)
	ctx, id := p.ctx, p.id
	run := func() tea.Msg {
		out, in := io.Pipe()
		d.running.Go(func() { failed <- errors.Join(d.sources.Tap(ctx, f, in), in.Close()) })
		d.running.Go(func() { pass(ctx, out, lines) })
		return linesMsg{id: id}
	}
	first := true
	return func() tea.Msg {
		if first {
			first = false
			return run()
		}
		return nextLines(id, lines, failed)
	}
}

// pass hands the lines of a reader over until its end. After the end of ctx it reads on, so that the writer ends.
func pass(ctx context.Context, from io.Reader, lines chan<- string) {
	defer close(lines)
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, tailBytes)
	for scanner.Scan() {
		select {
		case lines <- scanner.Text():
		case <-ctx.Done():
		}
	}
	_, _ = io.Copy(io.Discard, from) // a line that is too long ends the scanner, not the writer
}

// nextLines waits for a line and takes those that are there too.
func nextLines(id int, lines <-chan string, failed <-chan error) tea.Msg {
	msg := linesMsg{id: id}
	line, ok := <-lines
	if !ok {
		return linesMsg{id: id, end: true, err: <-failed}
	}
	for msg.lines = append(msg.lines, line); len(msg.lines) < maxPaneLines; {
		select {
		case line, ok := <-lines:
			if !ok {
				return msg // the next call finds the end
			}
			msg.lines = append(msg.lines, line)
		default:
			return msg
		}
	}
	return msg
}

func gone(id int, text string) tea.Cmd {
	return func() tea.Msg { return linesMsg{id: id, lines: []string{text}, whole: true, end: true} }
}

// log reads the end of a log again and again.
func (d *desk) log(p *pane) tea.Cmd {
	read, id, ctx := d.reader(p), p.id, p.ctx
	if read == nil {
		return gone(id, "there are no logs here: a recording has none")
	}
	look := func() tea.Msg {
		if ctx.Err() != nil {
			return nil
		}
		lines, err := read(ctx)
		return linesMsg{id: id, lines: lines, whole: true, err: err}
	}
	first := true
	return func() tea.Msg {
		if first {
			first = false
			return look()
		}
		return again(logEvery, look)()
	}
}

// reader reads the log that the pane is about; nil where there is none.
func (d *desk) reader(p *pane) func(context.Context) ([]string, error) {
	switch {
	case p.uid != "" && !d.sources.Files, p.uid == "" && d.sources.Journal == nil:
		return nil
	case p.uid != "" && len(p.logs) == 0:
		return func(context.Context) ([]string, error) {
			return nil, errors.New("no container of the pod has been made yet, so that there is no log")
		}
	case p.uid != "":
		path := p.logs[p.log].Path
		return func(context.Context) ([]string, error) { return tail(path) }
	}
	unit := "kubelot-" + p.thing
	if p.thing == nodeThing {
		unit = "kubelot-*"
	}
	return func(ctx context.Context) ([]string, error) {
		var out bytes.Buffer
		err := d.sources.Journal(ctx, &out, "--no-pager", "--lines="+tailLines, "--output=short-iso", "--unit="+unit,
			"--unit=kubelot-compact")
		if err != nil {
			return nil, fmt.Errorf("%w; a crew that kubelot up runs has its logs in that terminal", err)
		}
		return clean(out.String()), nil
	}
}

// tail is the end of a container's log in the runtime's format (time, stream, tag, text), without the stream and the
// tag.
func tail(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(0, size-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(file, from, size-from))
	if err != nil {
		return nil, err
	}
	text := string(data)
	if from > 0 { // the first line isn't whole
		_, text, _ = strings.Cut(text, "\n")
	}
	var lines []string
	for _, line := range clean(text) {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) == 4 {
			if at, err := time.Parse(time.RFC3339Nano, parts[0]); err == nil {
				line = at.Format("15:04:05.000") + " " + parts[3]
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = []string{"the log is empty"}
	}
	return lines, nil
}

// clean are the lines of a text, none of which can move the cursor.
func clean(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, words.OneLine(strings.TrimRight(line, "\r\n")))
	}
	return lines
}
