package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
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

// Read writes the log at path to out until ctx ends. Errors are in the kubelet's words, which kubectl shows.
func Read(ctx context.Context, path string, o Options, out io.Writer) error {
	r, err := open(path, o, out)
	if err != nil {
		return err
	}
	defer r.close()
	if o.Tail >= 0 {
		// What is written meanwhile would be more than was asked for.
		r.records = o.Tail
	}
	return done(r.drain(ctx))
}

// How often a followed file is looked at: soon after something came, more seldom while nothing does.
const (
	shortest = 10 * time.Millisecond
	longest  = 200 * time.Millisecond
)

// Follow is Read that continues with what is written later, until running says that the container has ended
// and all that it wrote is read, or ctx ends.
func Follow(ctx context.Context, path string, o Options, running func(context.Context) bool, out io.Writer) error {
	r, err := open(path, o, out)
	if err != nil {
		return err
	}
	defer r.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause, alive := shortest, true; ; pause = min(2*pause, longest) {
		before := r.read
		moved, err := r.drainAll(ctx)
		if err != nil || !alive && !moved {
			return done(err)
		}
		switch {
		case r.next != nil:
			// The runtime has this time to end what it writes into the old file.
			pause = longest
		case r.read != before:
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
	path string
	file *os.File
	// next is the file that took the place of the one that is read, until that is read to its end.
	next  *os.File
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
	file, err := openFile(resolved)
	if err != nil {
		return nil, err
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

// openFile opens a log. What is no file, such as a pipe, would block.
func openFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("failed to open log file %q: it is not a regular file", path)
	}
	return file, nil
}

func (r *reader) close() {
	r.file.Close()
	if r.next != nil {
		r.next.Close()
	}
}

// drainAll reads to the end of the file and, where it was found to be rotated the last time, on to the end of the new
// one. The runtime writes into the old one until it has opened the new one. moved says that there is a new one to go on
// with.
func (r *reader) drainAll(ctx context.Context) (moved bool, err error) {
	if err := r.drain(ctx); err != nil {
		return false, err
	}
	if r.next == nil {
		r.next, err = r.rotated()
		return r.next != nil, err
	}
	r.file.Close()
	r.file, r.next = r.next, nil
	r.lines.Reset(r.file)
	r.inText, r.skip = false, false
	return true, r.drain(ctx)
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
		// Renamed, and not created again yet.
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to open log file %q: %w", r.path, err)
	case os.SameFile(mine, now):
		return nil, nil
	}
	next, err := openFile(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

// drain reads to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
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
