package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options say what of a log is wanted.
type Options struct {
	// Tail is the number of records from the end; negative means all.
	Tail int64
	// Limit is how many bytes are written at most; negative means any number.
	Limit int64
	// Since leaves out older records.
	Since      time.Time
	Timestamps bool
	// Stdout and Stderr say which streams are wanted.
	Stdout, Stderr bool
}

// Read writes the log at path to out. Errors are in the kubelet's words, which kubectl shows.
func Read(path string, o Options, out io.Writer) error {
	r, err := open(path, o, out)
	if err != nil {
		return err
	}
	defer func() { r.file.Close() }()
	if o.Tail >= 0 {
		// What is written meanwhile would be more than was asked for.
		r.records = o.Tail
	}
	return done(r.drain())
}

// How often a followed file is looked at: soon after something came, more seldom while nothing does.
const (
	shortest = 10 * time.Millisecond
	longest  = 200 * time.Millisecond
)

// Follow is Read that goes on with what is written later, until running says that the container has ended
// and all that it wrote is read, or ctx ends.
func Follow(ctx context.Context, path string, o Options, running func(context.Context) bool, out io.Writer) error {
	r, err := open(path, o, out)
	if err != nil {
		return err
	}
	defer func() { r.file.Close() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause, alive := shortest, true; ; pause = min(2*pause, longest) {
		before := r.read
		moved, err := r.drainAll()
		if err != nil || !alive && !moved {
			return done(err)
		}
		if r.read != before {
			pause = shortest
		}
		// The end is looked for before the last drain: what was written before it is read then.
		alive = alive && running(ctx)
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// done is how a reading ends in order.
func done(err error) error {
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// reader reads one log file after the other.
type reader struct {
	path  string
	file  *os.File
	lines *bufio.Reader
	print printer
	// inText is true between a record's header and its end, skip while what comes is no record.
	inText bool
	skip   bool
	// records is how many may still be written; negative means any number.
	records int64
	// read is how many bytes were.
	read int64
}

func open(path string, o Options, out io.Writer) (*reader, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("failed to try resolving symlinks in path %q: %w", path, err)
	}
	file, err := os.Open(resolved)
	if err != nil {
		return nil, fmt.Errorf("failed to open log file %q: %w", resolved, err)
	}
	r := &reader{path: resolved, file: file, records: -1, print: printer{out: out, o: o, remain: o.Limit, fresh: true}}
	r.lines = bufio.NewReaderSize(file, block)
	if o.Tail >= 0 {
		start, err := tailStart(file, o.Tail)
		if err == nil {
			_, err = file.Seek(start, io.SeekStart)
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("failed to tail %d lines of log file %q: %w", o.Tail, resolved, err)
		}
	}
	return r, nil
}

// drainAll reads to the end of the file and, where it was rotated, on to the end of the new one; moved says that it was.
func (r *reader) drainAll() (moved bool, err error) {
	if err := r.drain(); err != nil {
		return false, err
	}
	next, err := r.rotated()
	if next == nil {
		return false, err
	}
	// The runtime wrote into the old file until it opened the new one.
	err = r.drain()
	r.file.Close()
	r.file = next
	r.lines.Reset(next)
	r.inText, r.skip = false, false
	if err != nil {
		return true, err
	}
	return true, r.drain()
}

// rotated opens the file that took the place of the one that is read; nil while none did.
func (r *reader) rotated() (*os.File, error) {
	mine, err := r.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("failed to read log file %q: %w", r.path, err)
	}
	now, err := os.Stat(r.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		// Renamed, and not made anew yet.
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to open log file %q: %w", r.path, err)
	case os.SameFile(mine, now):
		return nil, nil
	}
	next, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to open log file %q: %w", r.path, err)
	}
	return next, nil
}

// drain reads to the end of the file.
func (r *reader) drain() error {
	for {
		var err error
		switch {
		case r.inText:
			err = r.text()
		case r.records == 0:
			return nil
		default:
			err = r.header()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// header reads the next record's header. At the end of the file an incomplete one stays unread.
func (r *reader) header() error {
	data, readErr := r.lines.Peek(maxHeader)
	if readErr != nil && !errors.Is(readErr, io.EOF) {
		return fmt.Errorf("failed to read log file %q: %w", r.path, readErr)
	}
	h, err := parseHeader(data)
	if errors.Is(err, errShort) {
		return io.EOF
	}
	r.inText, r.skip = true, err != nil
	if r.skip {
		return nil
	}
	if _, err := r.lines.Discard(h.length); err != nil {
		return fmt.Errorf("failed to read log file %q: %w", r.path, err)
	}
	r.read += int64(h.length)
	if r.records > 0 {
		r.records--
	}
	return r.print.begin(h)
}

// text reads on in the record's text, a buffer at most.
func (r *reader) text() error {
	chunk, err := r.lines.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("failed to read log file %q: %w", r.path, err)
	}
	r.read += int64(len(chunk))
	if !r.skip && len(chunk) > 0 {
		if err := r.print.text(chunk); err != nil {
			return err
		}
	}
	switch {
	case err == nil:
		r.inText = false
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return nil
}
