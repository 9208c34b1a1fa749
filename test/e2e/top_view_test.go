package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"kubelot.dev/test/e2e/kit"
)

// terminal is a pseudo-terminal with a command of kubelot in it, and an emulator that draws what it writes.
type terminal struct {
	t      *testing.T
	file   *os.File
	cmd    *exec.Cmd
	screen *vt.SafeEmulator
	ended  chan struct{}
}

func inTerminal(t *testing.T, width, height uint16, args ...string) *terminal {
	t.Helper()
	term := &terminal{
		t: t, screen: vt.NewSafeEmulator(int(width), int(height)), ended: make(chan struct{}),
		cmd: exec.CommandContext(t.Context(), bed.Program("kubelot"), args...),
	}
	term.cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	file, err := pty.StartWithSize(term.cmd, &pty.Winsize{Rows: height, Cols: width})
	if err != nil {
		t.Fatal(err)
	}
	term.file = file
	var copying sync.WaitGroup
	copying.Go(func() {
		defer close(term.ended)
		// A pseudo-terminal whose program has ended gives an error instead of an end.
		_, _ = io.Copy(term.screen, file)
	})
	copying.Go(func() { _, _ = io.Copy(file, term.screen) })
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill() // one that has ended can't be killed
		_ = term.cmd.Wait()
		file.Close()
		_ = term.screen.Close()
		copying.Wait()
	})
	return term
}

func (term *terminal) text() string { return ansi.Strip(term.screen.Render()) }

// shows waits until all the words are on the screen, and none of the others.
func (term *terminal) shows(words, others []string) {
	term.t.Helper()
	kit.Eventually(term.t, "what the terminal shows", func() error {
		text := term.text()
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("there is no %q on it:\n%s", word, text)
			}
		}
		for _, word := range others {
			if strings.Contains(text, word) {
				return fmt.Errorf("there is %q on it:\n%s", word, text)
			}
		}
		return nil
	})
}

func (term *terminal) types(keys string) {
	term.t.Helper()
	if _, err := term.file.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// A person sees a pod that waits with its cause, opens why, the logs and the tap of it, and leaves.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("fine", `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]`+"\n") + "\n---\n" +
		pod("talks", `  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "echo told you so; sleep 3600"]}]`+
			"\n") + "\n---\n" +
		pod("noimage", `  containers: [{name: app, image: "docker.io/library/absent:1", imagePullPolicy: Never}]`+"\n"))
	ns.Wait("fine", "Ready", kit.Ready)
	ns.Wait("talks", "Ready", kit.Ready)
	ns.Waiting("noimage", "app", "ErrImageNeverPull")

	// As high as what a slow machine adds: the pod that waits tries again every ten seconds, a line or two each.
	term := inTerminal(t, 120, 80, "top", "--run-dir="+bed.Bed.Path("run"))
	term.shows([]string{"kubelot top", "1 Pods", "2 Daemons", "READY"}, nil)
	term.types("/" + ns.Name + "\r")
	term.shows([]string{"fine", "talks", "noimage", "ErrImageNeverPull", "absent:1", "start: "}, nil)
	term.types("/ noimage\r")
	term.shows([]string{"noimage"}, []string{"/fine", "/talks"})
	term.types("w")
	term.shows([]string{"why  " + ns.Name + "/noimage", "imagePullPolicy is Never", "Timeline", "create sandbox"}, nil)
	term.types("t")
	term.shows([]string{"tap  " + ns.Name + "/noimage", "podsync.step"}, nil)
	term.types("\x1b")
	term.shows([]string{"1 Pods"}, nil)
	// An escape is the beginning of a key's sequence if more follows at once.
	term.types("\x1b")
	term.shows([]string{"by who waits"}, []string{"/" + ns.Name + " "})
	term.types("/" + ns.Name + "/talks\rl")
	term.shows([]string{"logs  " + ns.Name + "/talks", "told you so"}, nil)
	term.types("q")
	term.shows([]string{"1 Pods", "/" + ns.Name + "/talks"}, nil)
	term.types("\x1b") // the filter is for all pages
	term.shows([]string{"by who waits"}, []string{"/" + ns.Name + "/talks "})
	term.types("2")
	term.shows([]string{"[2 Daemons", "podsync", "healthy", "Mi"}, nil)
	term.types("3")
	term.shows([]string{"EVICTION SIGNALS", "memory.available", "nodefs.available", "CONDITIONS", "Ready"}, nil)
	term.types("q")
	select {
	case <-term.ended:
	case <-time.After(kit.Patience):
		t.Fatalf("it doesn't end:\n%s", term.text())
	}
	if err := term.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, term.text())
	}
}

// picture is what a script gets of kubelot top.
type picture struct {
	Daemons []struct {
		Name        string  `json:"name"`
		State       string  `json:"state"`
		MemoryBytes uint64  `json:"memoryBytes"`
		CPU         float64 `json:"cpu"`
	} `json:"daemons"`
	Pods []struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		State     string `json:"state"`
		Start     struct {
			Spans []struct {
				Stage string `json:"stage"`
			} `json:"spans"`
		} `json:"start"`
	} `json:"pods"`
	Node struct {
		Signals []struct{} `json:"signals"`
	} `json:"node"`
}

// takePicture fails if the bus doesn't answer or a daemon isn't measured: another test may restart it just now.
func takePicture(t *testing.T) (now picture, err error) {
	t.Helper()
	out, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), "top", "-o", "json",
		"--run-dir="+bed.Bed.Path("run")))
	if err != nil {
		return now, fmt.Errorf("%w: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &now); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, d := range now.Daemons {
		if d.State == "" || d.MemoryBytes == 0 || d.CPU < 0 {
			return now, fmt.Errorf("the daemon %+v", d)
		}
	}
	return now, nil
}

// A script gets the same picture.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("fine", `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]`+"\n"))
	ns.Wait("fine", "Ready", kit.Ready)
	var now picture
	kit.Eventually(t, "a picture with all daemons", func() (err error) {
		now, err = takePicture(t)
		return err
	})
	stages := map[string]bool{}
	for _, p := range now.Pods {
		if p.Namespace == ns.Name && p.Name == "fine" {
			if p.State != "ready" {
				t.Errorf("the pod is %s", p.State)
			}
			for _, s := range p.Start.Spans {
				stages[s.Stage] = true
			}
		}
	}
	for _, stage := range []string{"admit", "sandbox", "pull", "create", "start", "ready"} {
		if !stages[stage] {
			t.Errorf("the start has no stage %s: %v", stage, stages)
		}
	}
	if len(now.Daemons) < 10 || len(now.Node.Signals) < 3 {
		t.Errorf("%d daemons, signals %+v", len(now.Daemons), now.Node.Signals)
	}
}
