package podstatus

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzLogTail has a container write what it likes into its log: the message is text of a bounded length, and nothing
// that isn't in the log.
func FuzzLogTail(f *testing.F) {
	for _, log := range []string{
		"", "\n", "no log at all", lines("before", "+the ", "end"), lines("\xff\xfe", strings.Repeat("ö", maxLogMessage)),
		"2026-01-01T00:00:00Z stdout F \n2026-01-01T00:00:00Z stderr P:x a b  c", "a b P c\r\n",
	} {
		f.Add([]byte(log))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		tail := tailOf(log)
		if len(tail) > maxLogMessage || !utf8.ValidString(tail) {
			t.Fatalf("%d bytes, valid %t: %q", len(tail), utf8.ValidString(tail), tail)
		}
		rest := string(log)
		for _, part := range strings.FieldsFunc(tail, func(r rune) bool { return r == '\n' || r == utf8.RuneError }) {
			// A part may be joined from several lines, but its first character is from one of them.
			_, size := utf8.DecodeRuneInString(part)
			if !strings.Contains(rest, part[:size]) {
				t.Fatalf("%q isn't in the log", part[:size])
			}
		}
	})
}

// FuzzLogLines has the last lines come out as they were written.
func FuzzLogLines(f *testing.F) {
	f.Add("one", "two", true)
	f.Add("", " two  words", false)
	f.Fuzz(func(t *testing.T, first, second string, joined bool) {
		if strings.Contains(first+second, "\n") || !utf8.ValidString(first) || !utf8.ValidString(second) ||
			strings.HasPrefix(first, "+") || strings.HasPrefix(second, "+") {
			t.Skip("no two lines of text")
		}
		log, want := lines(first, second), first+"\n"+second+"\n"
		if joined {
			log, want = lines("+"+first, second), first+second+"\n"
		}
		if len(want) > maxLogMessage {
			t.Skip("too long")
		}
		if got := tailOf([]byte(log)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
