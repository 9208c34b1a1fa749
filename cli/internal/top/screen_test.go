package top

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/livetest"
	"kubelot.dev/cli/internal/why"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", name, got)
	}
}

// story is the model of the story at its end, on a machine with a full disk.
func story() *live.Model {
	m := live.New()
	m.Take(live.Input{RetainedAt: livetest.Begin.Add(-1), Link: &live.Link{Up: true, Since: livetest.Begin}})
	for _, message := range livetest.Story() {
		m.Take(live.Input{Message: &message})
	}
	for i := range 2 {
		at := livetest.At(time.Duration(40+i) * time.Second)
		readings := map[string]live.Process{}
		for i, name := range live.Crew() {
			readings[name] = live.Process{
				At: at, PID: 100 + i, MemoryBytes: uint64(i+1) * 3 << 20, Restarts: -1,
				CPU: time.Duration(at.Unix()%100) * time.Duration(i+1) * time.Millisecond,
			}
		}
		m.Take(live.Input{Processes: readings, Machine: &live.Machine{
			At: at, MemoryBytes: 4 << 30, AvailableBytes: 1 << 30, PIDs: 400, PIDLimit: 32768, Load: 0.42,
			Disks: []live.Disk{{
				Role: "nodefs", Path: "/var/lib/kubelet", CapacityBytes: 100 << 30, AvailableBytes: 9 << 30,
				Inodes: 1000, FreeInodes: 900,
			}},
			Thresholds: []live.Threshold{
				{Signal: "memory.available", Value: "100Mi"}, {Signal: "nodefs.available", Value: "10%"},
			},
		}})
	}
	return m
}

// bench is a screen that is worked by hand.
type bench struct {
	*screen
	model *live.Model
	watch string
}

func newBench(t *testing.T, m *live.Model, width, height int) *bench {
	b := &bench{model: m}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	b.screen = newScreen(desk{ctx: ctx, watch: func(uid string) { b.watch = uid }, running: &running})
	b.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return b
}

// look gives the screen a picture.
func (b *bench) look() {
	msg := shot{picture: b.model.Picture(livetest.End)}
	if answer, ok := b.model.Why(topicRef(msg.picture, b.watch), livetest.End); ok {
		msg.answer = &answer
	}
	b.Update(msg)
}

var named = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "up": {Code: tea.KeyUp},
	"down": {Code: tea.KeyDown}, "pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp}, "end": {Code: tea.KeyEnd},
	"home": {Code: tea.KeyHome}, "backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
}

// press presses keys, and does once what they ask for.
func (b *bench) press(keys ...string) {
	for _, name := range keys {
		msg, ok := named[name]
		if !ok {
			msg = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		if _, cmd := b.Update(msg); cmd != nil {
			b.Update(cmd())
		}
	}
}

// text is the screen without its styles.
func (b *bench) text() string {
	var out strings.Builder
	for _, line := range b.draw() {
		out.WriteString(strings.TrimRight(ansi.Strip(line), " ") + "\n")
	}
	return out.String()
}

func TestScreens(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name          string
		width, height int
		keys          []string
	}{
		{"pods", 80, 24, nil},
		{"pods in a wide terminal", 140, 24, nil},
		{"the parts of the starts", 100, 24, []string{"v", "/", "w", "e", "b", "enter"}},
		{"the cursor", 80, 24, []string{"down", "j", "k"}},
		{"by name, reversed", 80, 24, []string{"s", "S"}},
		{"filter while typing", 80, 24, []string{"/", "o", "l", "x", "backspace"}},
		{"nothing matches", 80, 24, []string{"/", "x", "y", "enter"}},
		{"daemons", 80, 24, []string{"2"}},
		{"daemons by cpu in a wide terminal", 120, 24, []string{"tab", "s", "down"}},
		{"node", 80, 40, []string{"3"}},
		{"node, scrolled", 80, 16, []string{"3", "end"}},
		{"why a pod", 80, 30, []string{"enter"}},
		{"why a daemon", 80, 14, []string{"2", "down", "down", "w"}},
		{"why the node", 80, 14, []string{"3", "w"}},
		{"logs of no container", 80, 12, []string{"l"}},
		{"tap without a bus", 80, 12, []string{"t"}},
		{"back from why", 80, 16, []string{"enter", "esc"}},
		{"help", 80, 24, []string{"?"}},
		{"too small", 39, 12, nil},
	} {
		b := newBench(t, story(), c.width, c.height)
		b.look()
		b.press(c.keys...)
		b.look()
		fmt.Fprintf(&out, "=== %s (%dx%d) %s\n%s", c.name, c.width, c.height, strings.Join(c.keys, " "), b.text())
	}
	golden(t, "screens.txt", out.String())
}

// Every line is as wide as the terminal, and there are as many as it has lines, whatever is shown.
func TestTheScreenFitsEveryTerminal(t *testing.T) {
	m := story()
	for _, size := range [][2]int{{1, 1}, {20, 5}, {40, 12}, {41, 13}, {80, 24}, {79, 23}, {132, 50}, {300, 100}} {
		b := newBench(t, m, size[0], size[1])
		check := func(keys string) {
			lines := strings.Split(b.View().Content, "\n")
			if len(lines) != size[1] {
				t.Errorf("%v %s: %d lines", size, keys, len(lines))
			}
			for i, line := range lines {
				if w := ansi.StringWidth(line); w > size[0] {
					t.Errorf("%v %s: line %d is %d wide: %q", size, keys, i, w, ansi.Strip(line))
				}
			}
		}
		check("before the first picture")
		b.look()
		for _, keys := range []string{
			"end", "v", "v", "2", "end", "3", "pgdown", "end", "?", "esc", "w", "esc", "1", "w", "pgdown", "end", "esc", "l",
			"esc", "t", "esc", "/", "b", "enter", "s", "S",
		} {
			b.press(keys)
			check(keys)
		}
	}
}

// The cursor stays on its pod when others come and go.
func TestTheCursorFollowsItsPod(t *testing.T) {
	m := story()
	b := newBench(t, m, 80, 24)
	b.look()
	b.press("s", "end")
	chosen, _ := b.chosenPod()
	if chosen.Name != "web" {
		t.Fatalf("the last pod by name is %s", chosen.Name)
	}
	more := livetest.Message(51*time.Second, "podsync", topic.PodUpdate, "u9",
		livetest.Pod("u9", "zoo", 51*time.Second, nil))
	less := livetest.Message(51*time.Second, "podsync", topic.PodUpdate, "u3", nil)
	m.Take(live.Input{Message: &more})
	m.Take(live.Input{Message: &less})
	b.look()
	if now, _ := b.chosenPod(); now.UID != chosen.UID {
		t.Errorf("the cursor went from %s to %s", chosen.Name, now.Name)
	}
	gone := livetest.Message(52*time.Second, "podsync", topic.PodUpdate, chosen.UID, nil)
	m.Take(live.Input{Message: &gone})
	b.look()
	if _, ok := b.chosenPod(); !ok {
		t.Error("the cursor is on a pod that has gone")
	}
}

// A node with many pods scrolls.
func TestManyPods(t *testing.T) {
	m := story()
	for i := range 110 {
		uid := fmt.Sprintf("m%03d", i)
		message := livetest.Message(20*time.Second, "podsync", topic.PodUpdate, uid,
			livetest.Pod(uid, uid, 20*time.Second, nil))
		m.Take(live.Input{Message: &message})
	}
	b := newBench(t, m, 80, 24)
	b.look()
	b.press("s", "end")
	if text := b.text(); !strings.Contains(text, "> default/web") || strings.Contains(text, "default/broken") {
		t.Errorf("at the end:\n%s", text)
	}
	b.press("home")
	if text := b.text(); !strings.Contains(text, "> default/broken") {
		t.Errorf("at the beginning:\n%s", text)
	}
	b.press("pgdown", "pgdown")
	if text := b.text(); !strings.Contains(text, "> default/m0") {
		t.Errorf("two pages down:\n%s", text)
	}
}

// What is open comes up to date with each picture.
func TestWhyFollows(t *testing.T) {
	m := story()
	b := newBench(t, m, 80, 24)
	b.look()
	b.press("/", "b", "r", "o", "enter", "enter")
	b.look()
	if text := b.text(); b.watch != "u2" || !strings.Contains(text, "Timeline") {
		t.Errorf("it watches %q:\n%s", b.watch, text)
	}
	gone := livetest.Message(52*time.Second, "podsync", topic.PodUpdate, "u2", nil)
	m.Take(live.Input{Message: &gone})
	b.look()
	if text := b.text(); !strings.Contains(text, "isn't on this node any more") {
		t.Errorf("after it has gone:\n%s", text)
	}
	b.press("esc")
	if b.watch != "" || b.pane != nil {
		t.Errorf("after it was closed it watches %q", b.watch)
	}
}

func TestQuit(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"enter", "ctrl+c"}, {"/", "ctrl+c"}, {"?", "ctrl+c"}} {
		b := newBench(t, story(), 80, 24)
		b.look()
		b.press(keys[:len(keys)-1]...)
		_, cmd := b.Update(keyOf(keys[len(keys)-1]))
		if cmd == nil {
			t.Errorf("%v doesn't end it", keys)
			continue
		}
		if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%v doesn't end it", keys)
		}
	}
}

func keyOf(name string) tea.KeyPressMsg {
	if msg, ok := named[name]; ok {
		return msg
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// Texts of others can't move the cursor.
func TestHostileTexts(t *testing.T) {
	m := story()
	evil := livetest.Pod("u9", "evil", 20*time.Second, func(p *topic.Pod) { p.Pod.Name = "evil\x1b[2J\nname" })
	message := livetest.Message(20*time.Second, "podsync", topic.PodUpdate, "u9", evil)
	m.Take(live.Input{Message: &message})
	waits := livetest.Waiting("Evil\x1b]0;title\x07", "\x1b[31mred\r\nnext")
	status := livetest.Message(21*time.Second, "status", topic.MergedStatus, "u9",
		livetest.Status(livetest.Ref("u9", "evil"), "Pending", waits, false, 0))
	m.Take(live.Input{Message: &status})
	b := newBench(t, m, 120, 30)
	b.look()
	for _, keys := range []string{"/", "e", "v", "i", "l", "enter", "enter", "esc", "v"} {
		b.press(keys)
		b.look()
		for _, bad := range []string{"\x1b[2J", "\x1b]", "\x07", "\r"} {
			if strings.Contains(b.View().Content, bad) {
				t.Errorf("after %s the screen has %q", keys, bad)
			}
		}
	}
}

func TestText(t *testing.T) { golden(t, "once.txt", Text(story().Picture(livetest.End))) }

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 999 * time.Millisecond: "999ms", time.Second: "1.0s", 9940 * time.Millisecond: "9.9s",
		10 * time.Second: "10s", 10 * time.Minute: "10m", 50 * time.Hour: "2d2h",
	} {
		if got := short(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1.0Ki", 5 << 20: "5.0Mi", 33 << 20: "33Mi", 1000 << 20: "1.0Gi", 1 << 50: "1.0Pi",
		1<<64 - 1: "16Ei",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// What waits stands out.
func TestMoods(t *testing.T) {
	for state, want := range map[why.State]mood{
		why.Ready: calm, why.Waiting: waiting, why.Stopping: waiting, why.Ended: dimmed, why.Gone: dimmed,
	} {
		if got := podMood(live.Pod{State: state}); got != want {
			t.Errorf("%s: %d, want %d", state, got, want)
		}
	}
}
