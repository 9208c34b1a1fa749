package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/tap"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/cli/internal/words"
)

// paneKind is what a pane shows.
type paneKind string

const (
	whyPane paneKind = "why"
	tapPane paneKind = "tap"
	logPane paneKind = "logs"
)

// nodeThing is the node, as `kubelot why` calls it.
const nodeThing = "node"

// maxPaneLines bounds what a pane remembers.
const maxPaneLines = 5000

// pane shows one thing in the whole terminal.
type pane struct {
	// id tells the lines of this pane from those of one that was closed before.
	id    int
	kind  paneKind
	thing string
	// uid is the pod's, logs are its containers', and log is the one that is shown.
	uid  string
	logs []live.Log
	log  int

	view viewport.Model
	text []string
	// more waits for more lines; nil where none come.
	more  tea.Cmd
	ctx   context.Context
	close context.CancelFunc
}

// linesMsg are lines for a pane.
type linesMsg struct {
	id    int
	lines []string
	// whole says that the lines replace what was there.
	whole bool
	// end says that no more come; err why, if it is a failure.
	end bool
	err error
}

// newPane makes a pane about the thing under the cursor; ok is false where there is none.
func (s *screen) newPane(kind paneKind) (p *pane, filter tap.Filter, ok bool) {
	s.desk.panes++
	p = &pane{id: s.desk.panes, kind: kind, view: viewport.New()}
	p.ctx, p.close = context.WithCancel(s.desk.ctx)
	if pod, found := s.chosenPod(); found {
		p.thing, p.uid, p.logs = podName(pod), pod.UID, pod.Logs
		return p, tap.Filter{Pod: pod.UID}, true
	}
	if d, found := s.chosenDaemon(); found {
		p.thing = d.Name
		return p, tap.Filter{Daemon: d.Name}, true
	}
	if s.picture != nil && s.page == nodePage {
		p.thing = nodeThing
		return p, tap.Filter{Topics: []string{"node", "gc"}}, true
	}
	p.close()
	return nil, filter, false
}

// open opens a pane about the thing under the cursor.
func (s *screen) open(kind paneKind) tea.Cmd {
	p, filter, ok := s.newPane(kind)
	if !ok {
		return nil
	}
	s.pane = p
	switch kind {
	case whyPane:
		s.desk.watch(p.uid)
		p.shot(shot{picture: *s.picture})
		return nil
	case tapPane:
		p.more = s.desk.tap(p, filter)
	case logPane:
		p.more = s.desk.log(p)
	}
	return p.more
}

// shot brings a pane about why up to date.
func (p *pane) shot(msg shot) {
	if p.kind != whyPane {
		return
	}
	// The terminal's colours are taken away again where it has none, or nobody wants them.
	var text string
	painter := paint.Painter{On: true}
	switch {
	case p.uid != "":
		text = podWhy(p.uid, msg, painter)
	case p.thing == nodeThing:
		text = why.NodeText(msg.picture.Node.Answer, msg.picture.At, painter)
	default:
		text = daemonWhy(p.thing, msg.picture)
	}
	p.set(strings.Split(strings.TrimRight(text, "\n"), "\n"))
}

// podWhy is the answer with its timeline, once there is one.
func podWhy(uid string, msg shot, painter paint.Painter) string {
	if msg.answer != nil && msg.answer.UID == uid {
		return why.Text(*msg.answer, msg.picture.At, painter)
	}
	for _, pod := range msg.picture.Pods {
		if pod.UID == uid {
			return why.Text(pod.Answer, msg.picture.At, painter)
		}
	}
	return "The pod isn't on this node any more."
}

func daemonWhy(name string, picture live.Picture) string {
	for _, d := range picture.Daemons {
		if d.Name != name {
			continue
		}
		if d.Problem == "" {
			return fmt.Sprintf("%s is well: %s.", d.Name, words.OneLine(d.Doing))
		}
		return fmt.Sprintf("%s: %s.\n\n  -> %s", d.Name, words.OneLine(d.Problem),
			health.Units(health.Advice(d.Name), processesOf(picture)))
	}
	return "The daemon isn't known any more."
}

func processesOf(picture live.Picture) map[string]int {
	pids := map[string]int{}
	for _, d := range picture.Daemons {
		pids[d.Name] = d.PID
	}
	return pids
}

// set replaces the text. A reader who is at the end stays there.
func (p *pane) set(lines []string) {
	p.text = lines[max(0, len(lines)-maxPaneLines):]
	end := p.view.AtBottom() && p.kind != whyPane
	p.view.SetContent(strings.Join(p.text, "\n"))
	if end {
		p.view.GotoBottom()
	}
}

// lines adds what has come, and waits for more.
func (p *pane) lines(msg linesMsg) tea.Cmd {
	lines := msg.lines
	if msg.err != nil {
		lines = append(lines, words.OneLine(msg.err.Error()))
	}
	if msg.whole {
		p.set(lines)
	} else {
		p.set(append(p.text, lines...))
	}
	if msg.end {
		p.more = nil
	}
	return p.more
}

// press scrolls, or changes the container.
func (p *pane) press(msg tea.KeyPressMsg, s *screen) tea.Cmd {
	switch {
	case key.Matches(msg, pressed.first):
		p.view.GotoTop()
	case key.Matches(msg, pressed.last):
		p.view.GotoBottom()
	case key.Matches(msg, pressed.container) && p.kind == logPane && len(p.logs) > 1:
		// The lines of the container before may be on their way, so that this is another pane.
		s.desk.panes++
		p.id, p.log = s.desk.panes, (p.log+1)%len(p.logs)
		p.set(nil)
		p.more = s.desk.log(p)
		return p.more
	case key.Matches(msg, pressed.why, pressed.tap, pressed.logs):
		s.close()
		return s.pressInList(msg)
	default:
		p.view, _ = p.view.Update(msg)
	}
	return nil
}

// draw is the pane in a terminal of that size. Long lines are wrapped, since their ends often matter most.
func (p *pane) draw(width, height int) []string {
	title := string(p.kind) + "  " + p.thing
	if p.kind == logPane && len(p.logs) > 0 {
		title += fmt.Sprintf("  container %s (%d of %d)", words.OneLine(p.logs[p.log].Container), p.log+1, len(p.logs))
	}
	body := height - 3
	resized := p.view.Width() != width || p.view.Height() != body
	end := p.view.AtBottom() && p.kind != whyPane
	p.view.SoftWrap = true
	p.view.SetWidth(width)
	p.view.SetHeight(body)
	if p.kind == whyPane { // sentences, which break between words
		p.view.SetContent(ansi.Wrap(strings.Join(p.text, "\n"), width, ""))
	}
	if resized && end {
		p.view.GotoBottom()
	}
	place := fmt.Sprintf("%d%%", int(100*p.view.ScrollPercent()))
	if p.view.TotalLineCount() <= body {
		place = "all"
	}
	lines := []string{bold.Render(sides(title, place, width)), ""}
	lines = append(lines, strings.Split(p.view.View(), "\n")...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines[:height-1], shortHelp(pressed.ofPane(), width))
}

// again repeats a command after a pause.
func again(pause time.Duration, do func() tea.Msg) tea.Cmd {
	return tea.Tick(pause, func(time.Time) tea.Msg { return do() })
}
