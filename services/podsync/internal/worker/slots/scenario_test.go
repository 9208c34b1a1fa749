package slots

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs testdata: lines "NAME at=T rank=N takes=D", with "urgent=T" from when the caller waits for
// nobody, and "failed" where its last try has failed. The answer is who has a slot from when on. "go test -rewrite"
// writes the answers; read the difference before you keep it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) (answer string) {
			if d.Cmd != "slots" {
				t.Fatalf("unknown command %q", d.Cmd)
			}
			var n int
			d.ScanArgs(t, "n", &n)
			synctest.Test(t, func(t *testing.T) { answer = play(t, n, d.Input) })
			return answer
		})
	})
}

// caller is one line of a scenario.
type caller struct {
	name              string
	rank              uint64
	failed            bool
	at, takes, urgent time.Duration
}

func parse(t *testing.T, line string) caller {
	t.Helper()
	words := strings.Fields(line)
	c := caller{name: words[0], urgent: -1}
	for _, word := range words[1:] {
		if word == "failed" {
			c.failed = true
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		if key == "rank" {
			if _, err := fmt.Sscan(value, &c.rank); err != nil {
				t.Fatal(err)
			}
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			t.Fatal(err)
		}
		switch key {
		case "at":
			c.at = d
		case "takes":
			c.takes = d
		case "urgent":
			c.urgent = d
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return c
}

func play(t *testing.T, n int, script string) string {
	t.Helper()
	s := New(n)
	began := time.Now()
	granted := make(chan string, strings.Count(script, "\n")+1)
	var callers []caller
	for line := range strings.Lines(script) {
		callers = append(callers, parse(t, line))
	}
	for i, c := range callers {
		go func() {
			// Calls of one moment come in the order of their lines.
			time.Sleep(c.at + time.Duration(i)*time.Nanosecond)
			urgent := make(chan struct{})
			if c.urgent >= 0 {
				time.AfterFunc(c.urgent-c.at, func() { close(urgent) })
			}
			release, err := s.Acquire(t.Context(), Turn{Rank: c.rank, Failed: c.failed, Urgent: urgent}, Stop)
			if err != nil {
				t.Error(err)
				return
			}
			granted <- fmt.Sprintf("%v %s", time.Since(began).Round(time.Millisecond), c.name)
			time.Sleep(c.takes)
			release()
		}()
	}
	var lines []string
	for range callers {
		lines = append(lines, <-granted+"\n")
	}
	time.Sleep(time.Hour) // all have given their slots back
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != n {
		t.Errorf("%d of %d slots are free in the end", s.free, n)
	}
	return strings.Join(lines, "")
}
