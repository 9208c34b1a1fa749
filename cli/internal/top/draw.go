package top

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"kubelot.dev/cli/internal/words"
)

const (
	// chrome are the lines that each page has: headline, tabs, an empty one, and the help.
	chrome = 4
	// detailLines are those about the thing under the cursor, with the line above them.
	detailLines = 6
	// smallest is the size below which nothing can be shown.
	smallestWidth, smallestHeight = 40, 12
)

// View draws the screen.
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.draw(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "kubelot top"
	return v
}

// draw makes exactly as many lines as the terminal has.
func (s *screen) draw() []string {
	if s.width == 0 || s.height == 0 {
		return nil
	}
	var lines []string
	switch {
	case s.width < smallestWidth || s.height < smallestHeight:
		lines = []string{"The terminal is too small: 40x12 is the least."}
	case s.picture == nil:
		lines = []string{"reads the bus ..."}
	case s.help:
		lines = append([]string{headline(*s.picture, s.width), "", bold.Render("Keys")}, strings.Split(fullHelp(), "\n")...)
		lines = append(lines, "", "Yellow things wait or stop, red ones have failed; any key goes back.")
		lines = append(lines, glossary...)
	case s.pane != nil:
		lines = s.pane.draw(s.width, s.height)
	default:
		lines = s.drawList()
	}
	for len(lines) < s.height {
		lines = append(lines, "")
	}
	lines = lines[:s.height]
	for i := range lines {
		lines[i] = fit(lines[i], s.width)
	}
	return lines
}

// glossary explains the columns.
var glossary = []string{
	"",
	"START  from when the node first saw the pod until Ready; + is still under way",
	"RST    restarts: of containers, or of a daemon",
	"LAG    longest of the last minute from a daemon to the bus's store",
	"CPU    percent of one core; MEMORY is the process's own, without files",
}

// listHeight is how many rows a list has room for.
func (s *screen) listHeight() int {
	return max(1, s.height-chrome-detailLines-1) // one line for the titles
}

func (s *screen) drawList() []string {
	lines := []string{headline(*s.picture, s.width), s.tabs(), ""}
	if s.page == nodePage {
		all := nodeLines(*s.picture, s.width)
		room := s.height - chrome
		from := min(s.top[nodePage], len(all))
		lines = append(lines, all[from:min(len(all), from+room)]...)
	} else {
		t := s.table()
		lines = append(lines, t.header(s.width))
		lines = append(lines, t.lines(s.width, s.top[s.page], s.listHeight(), s.chosen[s.page])...)
		if len(t.rows) == 0 {
			lines = append(lines, faint.Render("  "+s.nothing()))
		}
		for len(lines) < s.height-detailLines-1 {
			lines = append(lines, "")
		}
		lines = append(lines, faint.Render(strings.Repeat("─", s.width)))
		lines = append(lines, s.detail()...)
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	return append(lines[:s.height-1], shortHelp(pressed.ofList(), s.width))
}

// nothing says why a list is empty.
func (s *screen) nothing() string {
	switch {
	case s.filter.Value() != "":
		return "nothing matches /" + words.OneLine(s.filter.Value()) + "; esc shows all"
	case !s.picture.Synced:
		return "reads the bus ..."
	}
	return "no pods on this node"
}

func (s *screen) detail() []string {
	if p, ok := s.chosenPod(); ok {
		return podDetail(p, s.picture.At, s.width)
	}
	if d, ok := s.chosenDaemon(); ok {
		return daemonDetail(d, s.picture.At, s.width)
	}
	return nil
}
