package podstatus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kubelot.dev/bus/topic"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines is a log in the CRI's format; those that begin with "+" go on in the next.
func lines(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		rest, partial := strings.CutPrefix(text, "+")
		tag := "F"
		if partial {
			tag = "P"
		}
		fmt.Fprintf(&b, "2026-01-01T00:00:00.000000000Z stdout %s %s\n", tag, rest)
	}
	return b.String()
}

func TestTerminationMessage(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("line ", i))
	}
	long := strings.Repeat("head", 2000) + strings.Repeat("tail", maxMessage/4)
	log := lines("before", "+the ", "end")
	for name, v := range map[string]struct {
		file, log, message, reason string
		code                       int32
		want                       string
	}{
		"a file's end":                {file: long, want: strings.Repeat("tail", maxMessage/4)},
		"the runtime's words first":   {file: "left", message: "OOM", want: "OOM: left"},
		"the runtime's words alone":   {message: "OOM", want: "OOM"},
		"a file goes before the log":  {file: "left", log: log, code: 1, want: "left"},
		"no log of what succeeded":    {log: log},
		"no log of what couldn't run": {log: log, code: 128, reason: "ContainerCannotRun"},
		"partial lines are joined":    {log: log, code: 1, want: "before\nthe end\n"},
		"the last lines of a log":     {log: lines(many...), code: 1, want: strings.Join(many[20:], "\n") + "\n"},
		"the last bytes of a log": {
			log: lines("head"+strings.Repeat("x", maxLogMessage), "tail"), code: 1,
			want: strings.Repeat("x", maxLogMessage-6) + "\ntail\n",
		},
		"the runtime's words and the log": {log: lines("end"), message: "bad", code: 1, want: "bad: end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := topic.Container{
				ExitCode: v.code, Message: v.message, Reason: v.reason,
				TerminationMessagePolicy: "FallbackToLogsOnError",
			}
			c.TerminationMessageFile, c.LogPath = write(t, v.file), write(t, v.log)
			if got := TerminationMessage(&c); got != v.want {
				t.Errorf("got %q, want %q", got, v.want)
			}
		})
	}
}

func TestATerminationMessageFileThatIsNone(t *testing.T) {
	huge := write(t, "head")
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Skip("the file system has no sparse files of this size:", err)
	}
	if got := TerminationMessage(&topic.Container{TerminationMessageFile: huge}); len(got) != maxMessage {
		t.Errorf("got %d bytes of a huge file, want %d", len(got), maxMessage)
	}
	fifo, link := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "link")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(write(t, "secret"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link, t.TempDir()} {
		if got := TerminationMessage(&topic.Container{TerminationMessageFile: path}); got != "" {
			t.Errorf("got %q of %s", got, path)
		}
	}
}
