// Package paint colours text for terminals. It is written by hand because charmbracelet/lipgloss would link 15 modules
// for what is one function here (docs/adr/0024).
package paint

import (
	"hash/fnv"
	"os"

	"golang.org/x/term"
)

// Painter colours text; the zero Painter leaves it plain.
type Painter struct{ On bool }

// For returns a Painter that colours if f is a terminal, unless off is set or NO_COLOR is (no-color.org).
func For(f *os.File, off bool) Painter {
	return Painter{On: !off && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))}
}

// Colour is an ANSI colour's code.
type Colour string

// The colours in use.
const (
	Dim    Colour = "2"
	Bold   Colour = "1"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

// names are the colours that a name may get.
var names = []Colour{"36", "35", "34", "33", "32", "96", "95", "94", "93", "92"}

// Paint colours text.
func (p Painter) Paint(c Colour, text string) string {
	if !p.On || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Name gives a name the colour that it always has.
func (p Painter) Name(name, text string) string {
	if colour, ok := daemons[name]; ok {
		return p.Paint(colour, text)
	}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	return p.Paint(names[hash.Sum32()%uint32(len(names))], text)
}

// daemons have colours that none of them shares.
var daemons = map[string]Colour{
	"bus": "90", "podsync": "36", "pleg": "35", "status": "34", "lease": "33",
	"volume": "32", "resource": "92", "stats": "96", "api": "95", "gc": "94", "probe": "93",
}
