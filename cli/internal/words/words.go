// Package words puts figures and other people's texts into words for a terminal.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age is how long ago something was, as kubectl says it.
func Age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Brief is a duration with at most three digits.
func Brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Plural is a count with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OneLine keeps what a container or a runtime said from moving the cursor or breaking the line. Lines are joined by "
// | "; what can't be printed is escaped as in Go.
func OneLine(text string) string {
	if !strings.ContainsFunc(text, hidden) && utf8.ValidString(text) {
		return text
	}
	var lines []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")); line != "" {
			lines = append(lines, escape(line))
		}
	}
	return strings.Join(lines, " | ")
}

// Lines keeps the line breaks and tabulators of a text, and escapes what else can't be printed.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j := range cells {
			cells[j] = escape(cells[j])
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// escape leaves quotation marks and backslashes alone, which strconv.Quote doesn't.
func escape(line string) string {
	var out strings.Builder
	for i, r := range line {
		_, size := utf8.DecodeRuneInString(line[i:])
		if hidden(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.Quote(line[i : i+size])
			out.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Clip is the beginning of a text, with at most the given number of characters. Dots say that some are left out.
func Clip(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return strings.TrimSpace(string(runes[:most-3])) + "..."
}
