package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/cli/internal/words"
)

// maxLine bounds a line of a recording. The largest message of the bus is much smaller.
const maxLine = 2 * bus.MaxPayload

// Reader reads a recording.
type Reader struct {
	in     *bufio.Reader
	line   int
	header Header
	first  time.Time
}

// Open reads the header. The error says what the file is if it isn't a recording that can be read.
func Open(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReader(in)}
	data, err := r.nextLine()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: it is no recording")
	}
	if err != nil {
		return nil, err
	}
	h := &r.header
	if json.Unmarshal(data, h) != nil || h.Format != magic {
		return nil, errors.New("the file is no recording: its first line isn't that of kubelot tap --record")
	}
	if h.Version < 1 || h.Version > formatVersion {
		return nil, fmt.Errorf("the recording has format %d, and this kubelot reads up to %d: use kubelot %s", h.Version,
			formatVersion, words.OneLine(h.Kubelot))
	}
	return r, nil
}

// Header is the first line.
func (r *Reader) Header() Header { return r.header }

// First is the time of the first message that isn't retained; zero before it was read.
func (r *Reader) First() time.Time { return r.first }

// All are the records that are left. An error is the last that it yields.
func (r *Reader) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			record, err := r.Next()
			if errors.Is(err, io.EOF) || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// Next is the next record; io.EOF behind the last one.
func (r *Reader) Next() (Record, error) {
	var record Record
	data, err := r.nextLine()
	switch {
	case errors.Is(err, io.EOF):
		return record, err
	case err != nil:
		return record, fmt.Errorf("read the recording: %w", err)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, fmt.Errorf("line %d of the recording is no message: %w", r.line, err)
	}
	if record.Subject == "" || record.Time.IsZero() && !record.Retained {
		return record, fmt.Errorf("line %d of the recording is no message: it has no subject or no time", r.line)
	}
	if r.first.IsZero() && !record.Retained {
		r.first = record.Time
	}
	return record, nil
}

// nextLine is the next line without its end; io.EOF behind the last one.
func (r *Reader) nextLine() ([]byte, error) {
	r.line++
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("line %d is longer than %d bytes: it is no message", r.line, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		}
	}
}
