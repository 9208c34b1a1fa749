package top

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"kubelot.dev/cli/internal/live/feed"
	"kubelot.dev/cli/internal/live/livetest"
	"kubelot.dev/cli/recording"
)

// terminalPatience is how long a terminal test waits for what must come.
const terminalPatience = 2 * time.Minute

// playing names the recording that the program plays that the tests run in a terminal.
const playing = "KUBELOT_TOP_TEST_PLAYS"

// TestProgram is the program that the other tests run.
func TestProgram(t *testing.T) {
	path := os.Getenv(playing)
	if path == "" {
		t.Skip("it is for the tests in a terminal")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := recording.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plays := feed.Replay(ctx, reader, feed.ReplayOptions{})
	if err := Run(ctx, Options{Feed: plays, In: os.Stdin, Out: os.Stdout}); err != nil {
		t.Fatal(err)
	}
}

// terminal is a pseudo-terminal with a program in it, and an emulator that draws what it writes.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   *os.File
	screen *vt.SafeEmulator
	wrote  chan struct{}
	ended  chan struct{}

	mu  sync.Mutex
	raw strings.Builder
}

func open(t *testing.T, width, height int, env ...string) *terminal {
	t.Helper()
	path := filepath.Join(t.TempDir(), "story.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(livetest.Record(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	term := &terminal{
		t: t, screen: vt.NewSafeEmulator(width, height), wrote: make(chan struct{}, 1), ended: make(chan struct{}),
		cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$"),
	}
	term.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", playing + "=" + path}, env...)...)
	term.file, err = pty.StartWithSize(term.cmd, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)})
	if err != nil {
		t.Fatal(err)
	}
	var copying sync.WaitGroup
	copying.Go(func() { term.draw() })
	// The emulator answers what the program asks its terminal.
	copying.Go(func() { _, _ = io.Copy(term.file, term.screen) })
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill() // one that has ended can't be killed
		_ = term.cmd.Wait()
		term.file.Close()
		_ = term.screen.Close()
		copying.Wait()
	})
	return term
}

// draw gives the emulator what the program writes.
func (term *terminal) draw() {
	defer close(term.ended)
	data := make([]byte, 64<<10)
	for {
		n, err := term.file.Read(data)
		term.mu.Lock()
		term.raw.Write(data[:n])
		term.mu.Unlock()
		_, _ = term.screen.Write(data[:n])
		select {
		case term.wrote <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// text is the screen without its styles.
func (term *terminal) text() string {
	var out strings.Builder
	for line := range strings.Lines(ansi.Strip(term.screen.Render())) {
		out.WriteString(strings.TrimRight(line, " \r\n") + "\n")
	}
	return out.String()
}

// shows waits until the screen is as wanted.
func (term *terminal) shows(what string, ok func(text string) bool) string {
	term.t.Helper()
	late := time.After(terminalPatience)
	for {
		text := term.text()
		if ok(text) {
			return text
		}
		select {
		case <-term.wrote:
		case <-late:
			term.t.Fatalf("waited %s for %s; the screen is\n%s", terminalPatience, what, text)
		}
	}
}

func (term *terminal) has(words ...string) string {
	term.t.Helper()
	return term.shows(strings.Join(words, ", "), func(text string) bool {
		for _, word := range words {
			if !strings.Contains(text, word) {
				return false
			}
		}
		return true
	})
}

func (term *terminal) types(keys string) {
	term.t.Helper()
	if _, err := term.file.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) resize(width, height int) {
	term.t.Helper()
	term.screen.Resize(width, height)
	if err := pty.Setsize(term.file, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		term.t.Fatal(err)
	}
}

// quits waits for the program's end, which must be a good one.
func (term *terminal) quits() {
	term.t.Helper()
	select {
	case <-term.ended:
	case <-time.After(terminalPatience):
		term.t.Fatalf("it doesn't end; the screen is\n%s", term.text())
	}
	if err := term.cmd.Wait(); err != nil {
		term.t.Errorf("it ended with %v; the screen is\n%s", err, term.text())
	}
	if term.screen.IsAltScreen() {
		term.t.Error("it left the terminal in the alternate screen")
	}
}

// atEnd is the time at the end of the story.
const atEnd = "12:00:50"

// atFirst waits for the end of the story, and puts the cursor on the first pod: it may be on one that was the first in
// an earlier picture. The last line says that the screen is whole.
func (term *terminal) atFirst() string {
	term.t.Helper()
	term.has(atEnd, "default/broken")
	term.types("g")
	return term.has(atEnd, "> default/broken", "registry.example", "tab next")
}

// A person looks at pods, opens why of one by keys, and leaves.
func TestInATerminal(t *testing.T) {
	term := open(t, 80, 24)
	golden(t, "terminal.txt", term.atFirst())
	term.types("/bro\r\r")
	term.has("why  default/broken", "Timeline")
	term.types("\x1b")
	term.has("1 Pods 4", "/bro")
	// An escape is the beginning of a key's sequence if more follows at once.
	term.types("\x1b")
	term.shows("all pods", func(text string) bool { return !strings.Contains(text, "/bro ") })
	term.types("2")
	term.has("[2 Daemons", "kubelot top", "DOES", "> bus")
	term.types("?")
	term.has("Keys", "reverse")
	term.types("?q")
	term.quits()
}

func TestResizing(t *testing.T) {
	term := open(t, 80, 24)
	term.atFirst()
	term.resize(140, 40)
	golden(t, "terminal-wide.txt", term.shows("a wide screen", func(text string) bool {
		lines := strings.Split(text, "\n")
		return len(lines) >= 40 && strings.HasSuffix(lines[0], atEnd) && len(lines[0]) >= 140 &&
			strings.Contains(lines[39], "quit")
	}))
	term.resize(50, 12)
	term.shows("a small screen", func(text string) bool {
		lines := strings.Split(text, "\n")
		return strings.HasSuffix(lines[0], atEnd) && len(lines[0]) <= 50 && strings.Contains(text, "broken: container app")
	})
	term.types("\x03")
	term.quits()
}

// colours are sequences that choose one of the terminal's.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-9]|4[0-9]|9[0-7]|10[0-7])(;[0-9;]*)?m`)

func TestColours(t *testing.T) {
	for _, c := range []struct {
		env     string
		colours bool
	}{{"COLORTERM=", true}, {"NO_COLOR=1", false}} {
		term := open(t, 80, 24, c.env)
		term.has(atEnd, "default/broken")
		term.types("q")
		term.quits()
		term.mu.Lock()
		raw := term.raw.String()
		term.mu.Unlock()
		if found := colours.FindString(raw); (found != "") != c.colours {
			t.Errorf("with %s it wrote the colour %q", c.env, found)
		}
	}
}
