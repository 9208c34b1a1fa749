package up

import (
	"bytes"
	"io"
	"sync"

	"kubelot.dev/cli/internal/paint"
)

// maxLine is how much of a line is held back while its end hasn't come; beyond it the line is cut in two.
const maxLine = 64 << 10

// console writes whole lines of several children to one place.
type console struct {
	mu      sync.Mutex
	out     io.Writer
	painter paint.Painter
	width   int // of the longest name
}

// line writes one line of the named child.
func (c *console) line(name string, text []byte) {
	prefix := name + string(bytes.Repeat([]byte(" "), max(0, c.width-len(name))))
	whole := c.painter.Name(name, prefix+" |") + " " + string(text) + "\n"
	c.mu.Lock()
	defer c.mu.Unlock()
	// A console that can't be written to (a closed pipe) must not stop the crew.
	_, _ = io.WriteString(c.out, whole)
}

// output is where one child writes; it cuts what it gets into lines.
type output struct {
	console *console
	name    string
	rest    []byte
}

func (o *output) Write(data []byte) (int, error) {
	o.rest = append(o.rest, data...)
	for {
		end := bytes.IndexByte(o.rest, '\n')
		switch {
		case end >= 0:
			o.console.line(o.name, bytes.TrimSuffix(o.rest[:end], []byte("\r")))
			o.rest = o.rest[end+1:]
		case len(o.rest) >= maxLine:
			o.flush()
		default:
			return len(data), nil
		}
	}
}

// flush writes what came without a newline.
func (o *output) flush() {
	if len(o.rest) > 0 {
		o.console.line(o.name, o.rest)
		o.rest = nil
	}
}
