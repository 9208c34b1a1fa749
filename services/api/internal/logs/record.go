package logs

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// header is what stands before the text of a record.
type header struct {
	time    time.Time
	stdout  bool
	partial bool
	length  int // in bytes, to the text
}

// maxHeader is longer than any header: a time with nanoseconds and zone, a stream, tags.
const maxHeader = 256

var (
	// errShort is a header that isn't all there yet.
	errShort = errors.New("the header is not complete")
	// errMalformed is a record of another form.
	errMalformed = errors.New("not a record of the CRI log format")
)

// parseHeader reads the header of a record from its beginning: "2016-10-06T00:17:09.669794202Z stdout F text".
func parseHeader(data []byte) (header, error) {
	var fields [3][]byte
	rest := data
	for i := range fields {
		end := bytes.IndexAny(rest, " \n")
		switch {
		case end < 0 && len(data) < maxHeader:
			return header{}, errShort
		case end < 0 || rest[end] == '\n':
			return header{}, errMalformed
		}
		fields[i], rest = rest[:end], rest[end+1:]
	}
	at, err := time.Parse(time.RFC3339Nano, string(fields[0]))
	stdout := string(fields[1]) == "stdout"
	if err != nil || !stdout && string(fields[1]) != "stderr" {
		return header{}, errMalformed
	}
	tag, _, _ := bytes.Cut(fields[2], []byte(":"))
	return header{time: at, stdout: stdout, partial: string(tag) == "P", length: len(data) - len(rest)}, nil
}

// errLimit ends the reading once as many bytes are written as were asked for.
var errLimit = errors.New("as many bytes are written as were asked for")

// printer writes the text of records as the options want it.
type printer struct {
	out    io.Writer
	o      Options
	remain int64 // bytes; negative for no limit
	// fresh is true where the next text begins a line.
	fresh bool
	// wanted is whether the present record's text must be written, partial whether its newline isn't.
	wanted, partial bool
}

// begin takes the header of the next record.
func (p *printer) begin(h header) error {
	p.wanted = (h.stdout && p.o.Stdout || !h.stdout && p.o.Stderr) && !h.time.Before(p.o.Since)
	p.partial = h.partial
	fresh := p.fresh
	p.fresh = !h.partial
	if p.wanted && p.o.Timestamps && fresh {
		return p.write(append(h.time.AppendFormat(nil, timeFormat), ' '))
	}
	return nil
}

// timeFormat is what kubectl logs --timestamps shows.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// text takes a part of the record's text; the last one ends in a newline.
func (p *printer) text(chunk []byte) error {
	if !p.wanted {
		return nil
	}
	if p.partial {
		chunk = bytes.TrimSuffix(chunk, []byte("\n"))
	}
	return p.write(chunk)
}

func (p *printer) write(data []byte) error {
	if p.remain >= 0 && int64(len(data)) >= p.remain {
		_, err := p.out.Write(data[:p.remain])
		p.remain = 0
		return errors.Join(err, errLimit)
	}
	if p.remain > 0 {
		p.remain -= int64(len(data))
	}
	if len(data) == 0 {
		return nil
	}
	_, err := p.out.Write(data)
	return err
}
