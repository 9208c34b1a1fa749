package top

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/cli/internal/words"
)

// page is one of the lists.
type page int

const (
	podPage page = iota
	daemonPage
	nodePage
	pages
)

// screen is the state of the view.
type screen struct {
	// picture is the last one. It is nil before the first.
	picture       *live.Picture
	width, height int
	page          page
	// chosen is the key of what is under the cursor, and top the first row that is shown, by page.
	chosen [pages]string
	top    [pages]int
	// order is the number of the order of each page, backwards that it is the other way round.
	order     [pages]int
	backwards [pages]bool
	starts    bool
	filter    textinput.Model
	filtering bool
	pane      *pane
	help      bool
	// desk opens what the panes show.
	desk desk
}

func newScreen(d desk) *screen {
	s := &screen{filter: textinput.New(), desk: d}
	s.filter.Prompt = "/"
	return s
}

// Init asks for nothing: pictures are sent.
func (s *screen) Init() tea.Cmd { return nil }

// shot is a new picture. answer belongs to the thing whose why is open.
type shot struct {
	picture live.Picture
	answer  *why.Answer
}

// Update takes a message of the terminal or of the shell.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case shot:
		s.picture = &msg.picture
		if s.pane != nil {
			s.pane.shot(msg)
		}
	case linesMsg:
		if s.pane != nil && s.pane.id == msg.id {
			return s, s.pane.lines(msg)
		}
		return s, nil
	case tea.KeyPressMsg:
		return s, s.press(msg)
	}
	s.settle()
	return s, nil
}

func (s *screen) press(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case msg.String() == "ctrl+c":
		return tea.Quit
	case s.filtering:
		s.edit(msg)
	case s.help:
		s.help = false
	case s.pane != nil:
		return s.pressInPane(msg)
	default:
		return s.pressInList(msg)
	}
	s.settle()
	return nil
}

// edit edits the filter.
func (s *screen) edit(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		s.filtering = false
	case "esc":
		s.filtering = false
		s.filter.SetValue("")
	default:
		s.filter, _ = s.filter.Update(msg)
	}
	if !s.filtering {
		s.filter.Blur()
	}
}

func (s *screen) pressInPane(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, pressed.back), key.Matches(msg, pressed.quit):
		s.close()
	case key.Matches(msg, pressed.help):
		s.help = true
	default:
		return s.pane.press(msg, s)
	}
	return nil
}

func (s *screen) close() {
	s.pane.close()
	s.pane = nil
	s.desk.watch("")
}

func (s *screen) pressInList(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, pressed.quit):
		return tea.Quit
	case key.Matches(msg, pressed.help):
		s.help = true
	case key.Matches(msg, pressed.back):
		s.filter.SetValue("")
	case key.Matches(msg, pressed.filter):
		s.filtering = true
		// The cursor doesn't blink: that would need a timer, and nobody misses it.
		s.filter.Focus()
	case key.Matches(msg, pressed.pods):
		s.page = podPage
	case key.Matches(msg, pressed.daemons):
		s.page = daemonPage
	case key.Matches(msg, pressed.node):
		s.page = nodePage
	case key.Matches(msg, pressed.next):
		s.page = (s.page + 1) % pages
	case key.Matches(msg, pressed.sort):
		s.order[s.page]++
		s.backwards[s.page] = false
	case key.Matches(msg, pressed.reverse):
		s.backwards[s.page] = !s.backwards[s.page]
	case key.Matches(msg, pressed.starts):
		s.starts = !s.starts
	default:
		return s.openOrMove(msg)
	}
	s.settle()
	return nil
}

// openOrMove opens a pane about what is under the cursor, or moves the cursor.
func (s *screen) openOrMove(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, pressed.why):
		return s.open(whyPane)
	case key.Matches(msg, pressed.tap):
		return s.open(tapPane)
	case key.Matches(msg, pressed.logs):
		return s.open(logPane)
	}
	s.move(msg)
	s.settle()
	return nil
}

// move moves the cursor, or scrolls the page that has none.
func (s *screen) move(msg tea.KeyPressMsg) {
	height, steps := s.listHeight(), 0
	switch {
	case key.Matches(msg, pressed.up):
		steps = -1
	case key.Matches(msg, pressed.down):
		steps = 1
	case key.Matches(msg, pressed.pageUp):
		steps = -height
	case key.Matches(msg, pressed.pageDown):
		steps = height
	case key.Matches(msg, pressed.first):
		steps = -1 << 30
	case key.Matches(msg, pressed.last):
		steps = 1 << 30
	}
	if s.page == nodePage {
		s.top[nodePage] = max(0, s.top[nodePage]+steps)
		return
	}
	rows := s.table().rows
	if len(rows) > 0 {
		at := min(max(0, s.cursor(rows)+steps), len(rows)-1)
		s.chosen[s.page] = rows[at].key
	}
}

// cursor is the row under the cursor; the first one where it is on none.
func (s *screen) cursor(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool { return r.key == s.chosen[s.page] }))
}

// settle puts the cursor on a row that is there, and scrolls so that it is seen.
func (s *screen) settle() {
	if s.picture == nil || s.height == 0 {
		return
	}
	height := s.listHeight()
	if s.page == nodePage {
		most := len(nodeLines(*s.picture, s.width)) - (s.height - chrome)
		s.top[nodePage] = min(s.top[nodePage], max(0, most))
		return
	}
	rows := s.table().rows
	if len(rows) == 0 {
		s.top[s.page] = 0
		return
	}
	at := s.cursor(rows)
	if !slices.ContainsFunc(rows, func(r row) bool { return r.key == s.chosen[s.page] }) {
		at = min(s.top[s.page], len(rows)-1) // what was chosen has gone, or nothing was
		if s.chosen[s.page] == "" {
			at = 0
		}
		s.chosen[s.page] = rows[at].key
	}
	first := min(max(s.top[s.page], at-height+1), at)
	s.top[s.page] = max(0, min(first, len(rows)-height))
}

// table is the list of the page.
func (s *screen) table() table {
	if s.picture == nil {
		return table{}
	}
	var t table
	switch s.page {
	case podPage:
		pods := sorted(s.picture.Pods, podOrders, s.order[podPage], s.backwards[podPage])
		t = podTable(pods, s.picture.At, s.starts)
	case daemonPage:
		t = daemonTable(sorted(s.picture.Daemons, daemonOrders, s.order[daemonPage], s.backwards[daemonPage]))
	}
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool { return !s.matches(r) })
	return t
}

// matches reports whether each word of the filter is in the row.
func (s *screen) matches(r row) bool {
	text := strings.ToLower(strings.Join(r.cells, " "))
	for word := range strings.FieldsSeq(strings.ToLower(s.filter.Value())) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// chosenPod is the pod under the cursor.
func (s *screen) chosenPod() (live.Pod, bool) {
	if s.picture == nil || s.page != podPage {
		return live.Pod{}, false
	}
	at := slices.IndexFunc(s.picture.Pods, func(p live.Pod) bool { return p.UID == s.chosen[podPage] })
	if at < 0 {
		return live.Pod{}, false
	}
	return s.picture.Pods[at], true
}

// chosenDaemon is the daemon under the cursor.
func (s *screen) chosenDaemon() (live.Daemon, bool) {
	if s.picture == nil || s.page != daemonPage {
		return live.Daemon{}, false
	}
	at := slices.IndexFunc(s.picture.Daemons, func(d live.Daemon) bool { return d.Name == s.chosen[daemonPage] })
	if at < 0 {
		return live.Daemon{}, false
	}
	return s.picture.Daemons[at], true
}

// orderName is how the page is sorted.
func (s *screen) orderName() string {
	name := ""
	switch s.page {
	case podPage:
		name = podOrders[s.order[podPage]%len(podOrders)].name
	case daemonPage:
		name = daemonOrders[s.order[daemonPage]%len(daemonOrders)].name
	}
	if s.backwards[s.page] {
		name += ", reversed"
	}
	return name
}

// tabs names the pages with what is in them.
func (s *screen) tabs() string {
	waits, ill := 0, 0
	for _, p := range s.picture.Pods {
		if podMood(p) > dimmed {
			waits++
		}
	}
	for _, d := range s.picture.Daemons {
		if d.Problem != "" {
			ill++
		}
	}
	names := [pages]string{
		fmt.Sprintf("1 Pods %d", len(s.picture.Pods)), fmt.Sprintf("2 Daemons %d", len(s.picture.Daemons)), "3 Node",
	}
	if waits > 0 {
		names[podPage] += fmt.Sprintf(" (%d not well)", waits)
	}
	if ill > 0 {
		names[daemonPage] += fmt.Sprintf(" (%d not well)", ill)
	}
	var out strings.Builder
	for i, name := range names {
		if page(i) == s.page {
			out.WriteString(reverse.Render("[" + name + "]"))
		} else {
			out.WriteString(" " + name + " ")
		}
		out.WriteString(" ")
	}
	right := ""
	if name := s.orderName(); name != "" {
		right = "by " + name
	}
	if s.filtering {
		right = s.filter.View()
	} else if s.filter.Value() != "" {
		right = "/" + words.OneLine(s.filter.Value()) + "  " + right
	}
	return sides(out.String(), right, s.width)
}
