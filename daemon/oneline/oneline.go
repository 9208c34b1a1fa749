// Package oneline makes texts of other programs fit for logs, statuses and errors.
package oneline

import (
	"strings"
	"unicode"
)

const end = "..."

// Of is the text in one line, with spaces for what can't be printed, and in at most that many bytes. Three dots stand
// for what is left out.
func Of(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(end)], "") + end
	}
	return text
}
