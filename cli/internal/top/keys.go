package top

import (
	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
)

// keys are what can be pressed.
type keys struct {
	up, down, pageUp, pageDown, first, last key.Binding
	pods, daemons, node, next               key.Binding
	why, tap, logs, container               key.Binding
	filter, sort, reverse, starts           key.Binding
	help, back, quit                        key.Binding
}

func bind(shown, does string, names ...string) key.Binding {
	return key.NewBinding(key.WithKeys(names...), key.WithHelp(shown, does))
}

var pressed = keys{
	up:        bind("↑/k", "up", "up", "k"),
	down:      bind("↓/j", "down", "down", "j"),
	pageUp:    bind("pgup", "page up", "pgup", "ctrl+b"),
	pageDown:  bind("pgdn", "page down", "pgdown", "ctrl+f", "space"),
	first:     bind("g", "first", "home", "g"),
	last:      bind("G", "last", "end", "G"),
	pods:      bind("1", "pods", "1"),
	daemons:   bind("2", "daemons", "2"),
	node:      bind("3", "node", "3"),
	next:      bind("tab", "next page", "tab"),
	why:       bind("enter/w", "why", "enter", "w"),
	tap:       bind("t", "tap", "t"),
	logs:      bind("l", "logs", "l"),
	container: bind("c", "next container", "c"),
	filter:    bind("/", "filter", "/"),
	sort:      bind("s", "sort", "s"),
	reverse:   bind("S", "reverse", "S"),
	starts:    bind("v", "start split", "v"),
	help:      bind("?", "help", "?"),
	back:      bind("esc", "back", "esc"),
	quit:      bind("q", "quit", "q", "ctrl+c"),
}

// ofList, ofPane and all are the bindings that the help lines name.
func (k keys) ofList() []key.Binding {
	return []key.Binding{k.why, k.tap, k.logs, k.filter, k.sort, k.starts, k.next, k.help, k.quit}
}

func (k keys) ofPane() []key.Binding {
	return []key.Binding{k.back, k.up, k.down, k.container, k.help, k.quit}
}

func (k keys) all() [][]key.Binding {
	return [][]key.Binding{
		{k.up, k.down, k.pageUp, k.pageDown, k.first, k.last},
		{k.pods, k.daemons, k.node, k.next, k.help, k.back, k.quit},
		{k.why, k.tap, k.logs, k.container, k.filter, k.sort, k.reverse, k.starts},
	}
}

// shortHelp is the last line of the screen.
func shortHelp(bindings []key.Binding, width int) string {
	h := help.New()
	h.Styles = helpStyles
	h.SetWidth(width)
	return fit(h.ShortHelpView(bindings), width)
}

// helpStyles have no colours: the library's are for dark terminals only.
var helpStyles = help.Styles{
	ShortKey: bold, ShortDesc: faint, ShortSeparator: faint, Ellipsis: faint,
	FullKey: bold, FullDesc: faint, FullSeparator: faint,
}

func fullHelp() string {
	h := help.New()
	h.Styles = helpStyles
	return h.FullHelpView(pressed.all())
}
