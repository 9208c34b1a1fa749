package tools

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// tellEvery is how often a long build says how far it is.
const tellEvery = 15 * time.Second

// progress takes the output of a build. What go prints for each module and package is counted and told now and then;
// the rest is kept, for the error.
type progress struct {
	name              string
	out               io.Writer
	told              time.Time
	modules, packages int
	line, rest        bytes.Buffer
}

// packagePath is what go build -v prints for a package that it compiles.
var packagePath = regexp.MustCompile(`^[\w.~+/-]+$`)

// Write never fails: the build matters more than what is told of it.
func (p *progress) Write(data []byte) (int, error) {
	for _, c := range data {
		if p.line.WriteByte(c); c == '\n' {
			p.take(p.line.String())
			p.line.Reset()
		}
	}
	if time.Since(p.told) >= tellEvery {
		p.told = time.Now()
		fmt.Fprintf(p.out, "tools: %s: %d modules fetched, %d packages compiled\n", p.name, p.modules, p.packages)
	}
	return len(data), nil
}

func (p *progress) take(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		p.modules++
	case packagePath.MatchString(strings.TrimSuffix(line, "\n")):
		p.packages++
	default:
		p.rest.WriteString(line)
	}
}

// unexpected is what was printed besides modules and packages.
func (p *progress) unexpected() string { return p.rest.String() + p.line.String() }
