package tap

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// screen takes what is written while it is read.
type screen struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *screen) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *screen) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// Without following, the tap ends at the end of the history by itself.
func TestOnceEndsWithTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		if err := topic.PodSources.Writer(podsync).Set("", topic.Sources{Ready: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var out screen
		begun := time.Now()
		if err := Run(t.Context(), cli.Transport(), Options{Since: time.Minute, Once: true}, &out); err != nil {
			t.Fatal(err)
		}
		if text := out.text(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "pod.sources") ||
			time.Since(begun) > time.Second {
			t.Errorf("after %s it has shown %q", time.Since(begun), text)
		}
	})
}

// Ctrl-C ends the tap quietly, also while it still reads what is retained.
func TestInterruptedBeforeTheFirstLine(t *testing.T) {
	for name, o := range map[string]Options{"shown": {}, "recorded": {Record: &screen{}}} {
		synctest.Test(t, func(t *testing.T) {
			shared := bustest.New()
			shared.Disconnect() // so nothing comes that it waits for
			cli := shared.Conn("cli")
			defer cli.Close()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(namesTimeout/2, cancel)
			var out screen
			if err := Run(ctx, cli.Transport(), o, &out); err != nil || out.text() != "" {
				t.Errorf("%s: it ends with %v, and has shown %q", name, err, out.text())
			}
		})
	}
}

// A file that can't be written is an error all the same.
func TestInterruptedWhileARecordingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		pod := topic.Pod{Pod: examplePod(), Lifecycle: topic.Syncing}
		if err := topic.PodUpdate.Writer(podsync).Set("u1", pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		full := &fullDisk{interrupt: cancel}
		if err := Run(ctx, cli.Transport(), Options{Record: full}, &screen{}); !errors.Is(err, errFull) {
			t.Errorf("it ends with %v, want %v", err, errFull)
		}
	})
}

var errFull = errors.New("no space left")

// fullDisk takes the header of a recording, and nothing more. Meanwhile somebody presses Ctrl-C.
type fullDisk struct {
	header    bool
	interrupt func()
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if !d.header {
		d.header = true
		return len(p), nil
	}
	d.interrupt()
	return 0, errFull
}

// A step that doesn't end is told of again and again, more and more seldom.
func TestOpenStepsAreToldOfMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		steps := topic.PodStep.Publisher(podsync)
		step := func(phase string) {
			ref := topic.Ref{Namespace: "default", Name: "web", UID: "u1"}
			s := topic.Step{Ref: ref, Name: "ensure image", Container: "app", Phase: phase, At: time.Now()}
			if err := steps.Publish("u1", s); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var out screen
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, cli.Transport(), Options{}, &out) }()
		synctest.Wait()
		told := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := strings.Count(out.text(), "still open: default/web  ensure image app, for "); got != want {
				t.Errorf("it is told of %d times, want %d, in\n%s", got, want, out.text())
			}
		}
		step(topic.StepBegin)
		told(9*time.Second, 0)
		told(3*time.Second, 1)  // 12 s
		told(10*time.Second, 2) // 22 s
		told(15*time.Second, 2)
		told(5*time.Second, 3) // 42 s
		step(topic.StepEnd)
		told(time.Hour, 3)
		step(topic.StepBegin) // another run
		told(5*time.Second, 3)
		told(7*time.Second, 4)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		told(0, 5) // at the end
	})
}
