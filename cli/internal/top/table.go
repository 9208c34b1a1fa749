package top

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// mood says how urgent a line is.
type mood int

const (
	calm    mood = iota
	dimmed       // of no interest now
	waiting      // somebody waits
	failing      // a person should look at it
)

// The styles use the sixteen colours that terminals' themes define.
var styles = map[mood]lipgloss.Style{
	calm:    lipgloss.NewStyle(),
	dimmed:  lipgloss.NewStyle().Faint(true),
	waiting: lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	failing: lipgloss.NewStyle().Foreground(lipgloss.Red),
}

var (
	bold    = lipgloss.NewStyle().Bold(true)
	reverse = lipgloss.NewStyle().Reverse(true)
	faint   = lipgloss.NewStyle().Faint(true)
	good    = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

// column is a column of a table.
type column struct {
	title string
	// width is how wide it is at least, including no gap.
	width int
	right bool
	// grows says that the column takes a share of what is left, and shrinks that it gives up to its title's width where
	// the terminal is too narrow.
	grows, shrinks bool
}

// row is a thing in a table.
type row struct {
	// key finds the thing again in the next picture.
	key   string
	cells []string
	mood  mood
}

// table is a list of things.
type table struct {
	columns []column
	rows    []row
}

// gap is between two columns, and margin before the first one, where the cursor is.
const (
	gap    = 2
	margin = 2
)

// widths fits the columns into a width: they are as wide as their contents where there is room.
func (t table) widths(total int) []int {
	widths := make([]int, len(t.columns))
	used := margin - gap
	for i, c := range t.columns {
		widths[i] = max(c.width, ansi.StringWidth(c.title))
		for _, r := range t.rows {
			if !c.grows {
				widths[i] = max(widths[i], ansi.StringWidth(r.cells[i]))
			}
		}
		used += widths[i] + gap
	}
	t.shrink(widths, used-total)
	t.grow(widths, total-used)
	return widths
}

// shrink takes what is missing from the columns that may shrink, the widest first.
func (t table) shrink(widths []int, missing int) {
	for ; missing > 0; missing-- {
		widest := -1
		for i, c := range t.columns {
			if c.shrinks && widths[i] > ansi.StringWidth(c.title) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// grow gives what is left to the columns that grow, up to their contents.
func (t table) grow(widths []int, left int) {
	for i, c := range t.columns {
		if !c.grows || left <= 0 {
			continue
		}
		want := 0
		for _, r := range t.rows {
			want = max(want, ansi.StringWidth(r.cells[i])-widths[i])
		}
		more := min(left, want)
		widths[i] += more
		left -= more
	}
}

// header is the line of titles.
func (t table) header(total int) string {
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	return bold.Render(t.line(titles, t.widths(total), "  ", total))
}

// lines are the rows from one on, at most so many. chosen is under the cursor.
func (t table) lines(total, from, most int, chosen string) []string {
	widths := t.widths(total)
	var lines []string
	for _, r := range t.rows[min(from, len(t.rows)):min(from+most, len(t.rows))] {
		mark, style := "  ", styles[r.mood]
		if r.key == chosen {
			mark, style = "> ", style.Inherit(reverse)
		}
		lines = append(lines, style.Render(t.line(r.cells, widths, mark, total)))
	}
	return lines
}

// line lays cells out. It is as wide as the terminal, so that a cursor line is a bar.
func (t table) line(cells []string, widths []int, mark string, total int) string {
	var out strings.Builder
	out.WriteString(mark)
	for i, cell := range cells {
		if i > 0 {
			out.WriteString(strings.Repeat(" ", gap))
		}
		cell = ansi.Truncate(cell, widths[i], "…")
		pad := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
		if t.columns[i].right {
			cell = pad + cell
		} else {
			cell += pad
		}
		out.WriteString(cell)
	}
	return fit(out.String(), total)
}

// fit cuts or fills a text to a width.
func fit(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// wrap breaks a text into lines of a width, at most so many.
func wrap(text string, width, most int) []string {
	if width <= 0 || text == "" {
		return nil
	}
	lines := strings.Split(ansi.Wrap(text, width, ""), "\n")
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = ansi.Truncate(lines[most-1], width-1, "") + "…"
	}
	return lines
}

// sides sets one text to the left and one to the right; the left one gives way.
func sides(left, right string, width int) string {
	room := max(0, width-ansi.StringWidth(right)-1)
	left = ansi.Truncate(left, room, "…")
	return fit(left+strings.Repeat(" ", max(1, width-ansi.StringWidth(left)-ansi.StringWidth(right)))+right, width)
}
