package crew

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line may be, in characters. A tab counts as one.
const maxColumns = 120

func TestArchLinesAreShort(t *testing.T) {
	for path := range goFiles(t, "..") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range longLines(data) {
			t.Errorf("%s:%d has more than %d columns: break it after a comma or an operator", path, number, maxColumns)
		}
	}
}

// longLines are the numbers of the lines that are too long, in ascending order. These may be: lines of raw strings,
// which are mostly manifests, blocks of text in doc comments, addresses of web pages and directives.
func longLines(source []byte) []int {
	long := map[int]bool{}
	for i, line := range strings.Split(string(source), "\n") {
		text := strings.TrimSpace(line)
		exempt := strings.HasPrefix(text, "//\t") || strings.Contains(text, "://") || strings.Contains(text, "//nolint:")
		if utf8.RuneCountInString(line) > maxColumns && !exempt {
			long[i+1] = true
		}
	}
	if len(long) == 0 {
		return nil
	}
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			var numbers []int
			for number := range long {
				numbers = append(numbers, number)
			}
			slices.Sort(numbers)
			return numbers
		case tok == token.STRING && literal[0] == '`':
			first := file.Line(pos)
			for i := range strings.Count(literal, "\n") + 1 {
				delete(long, first+i)
			}
		}
	}
}

func TestArchLinesOfDocumentsAreShort(t *testing.T) {
	for _, path := range documents(t) {
		for _, number := range longProse(read(t, path)) {
			t.Errorf("%s:%d has more than %d columns: break it between two words", path, number, maxColumns)
		}
	}
}

func TestArchLinesOfScriptsAreShort(t *testing.T) {
	for _, path := range append(filesOf(t, ".sh"), "Makefile", ".ci/run") {
		for i, line := range strings.Split(read(t, path), "\n") {
			if utf8.RuneCountInString(line) > maxColumns {
				t.Errorf("%s:%d has more than %d columns: break it", path, i+1, maxColumns)
			}
		}
	}
}

// longProse are the numbers of the lines of a Markdown document that are too long, in ascending order. Tables, blocks
// of code and lines that can't be broken, such as one with a long link, may be.
func longProse(text string) []int {
	var numbers []int
	block := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			block = !block
		}
		exempt := block || strings.HasPrefix(trimmed, "|") || inOnePiece.MatchString(line)
		if utf8.RuneCountInString(line) > maxColumns && !exempt {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// inOnePiece matches a line that is one word, code span or link, with the mark of an item before it and the mark of
// a sentence's end after it.
var inOnePiece = regexp.MustCompile("^ *([-*] |\\d+\\. )?(\\S+|`[^`]+`|!?\\[[^]]*\\]\\(\\S*\\))[.,;:)]*$")

func TestLongProse(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	text := fmt.Sprintf("a %s\n| a %s |\n- [a b](%s).\n- a [b](%s)\n```\na %s\n```\n%s %s\n`a %s`,\n", long, long, long,
		long, long, long, long, long)
	if got := longProse(text); !slices.Equal(got, []int{1, 4, 8}) {
		t.Errorf("lines %v are too long, want 1, 4 and 8", got)
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	source := fmt.Sprintf("package p\n\n// %s\n//\t%s\nvar a = \"%s\"\nvar b = `\n%s\n`\nvar c = \"https://%s\"\n", long,
		long, long, long, long)
	if got := longLines([]byte(source)); !slices.Equal(got, []int{3, 5}) {
		t.Errorf("lines %v are too long, want 3 and 5", got)
	}
}
