package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

type klogLevel = klog.Level

// libraryVerbosity is the verbosity at which the Kubernetes libraries log.
func libraryVerbosity() (v klogLevel) {
	for klog.V(v + 1).Enabled() {
		v++
	}
	return v
}

// diary notes what members do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, ", ")
}

// closing is a member's bus connection that notes its end.
type closing struct {
	*recorder
	end func()
}

func (c closing) Close() { c.end() }

// crew is a group under test.
type crew struct {
	t      *testing.T
	runDir string
	diary  diary
	stop   context.CancelFunc
	group  *group
	leave  time.Duration // the group's

	mu    sync.Mutex
	conns map[string][]*recorder // by member, of each life
	done  chan error
	log   *os.File
}

// startGroup runs the members until stop, which returns the group's error and log.
func startGroup(t *testing.T, specs func(*crew) []Spec, args ...string) *crew {
	t.Helper()
	c := &crew{
		t: t, runDir: t.TempDir(), conns: map[string][]*recorder{}, done: make(chan error, 1), leave: time.Minute,
	}
	var err error
	if c.log, err = os.Create(filepath.Join(c.runDir, "stderr")); err != nil {
		t.Fatal(err)
	}
	g := &group{program: "test", specs: specs(c), stderr: c.log, patience: time.Minute}
	g.leave = c.leave
	g.dial = func(_ context.Context, spec Spec, _ *config.Config, _ *slog.Logger) (bus.Transport, error) {
		r := &recorder{}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns[spec.Name] = append(c.conns[spec.Name], r)
		return closing{r, func() { c.diary.note("%s hung up", spec.Name) }}, nil
	}
	c.group = g
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	g.line.register(fs, g.specs...)
	if err := fs.Parse(append([]string{"--run-dir=" + c.runDir, "--hostname-override=n"}, args...)); err != nil {
		t.Fatal(err)
	}
	g.line.parsed(fs)
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	go func() { c.done <- g.run(ctx) }()
	t.Cleanup(func() {
		stop()
		c.log.Close()
	})
	return c
}

// ended waits for the group's end and returns its error and what it logged.
func (c *crew) ended() (string, error) {
	c.t.Helper()
	select {
	case err := <-c.done:
		text, readErr := os.ReadFile(c.log.Name())
		if readErr != nil {
			c.t.Fatal(readErr)
		}
		return string(text), err
	case <-time.After(time.Minute):
		c.t.Fatalf("the group doesn't end: %s", &c.diary)
		return "", nil
	}
}

// healths are the states that a member published in each of its lives.
func (c *crew) healths(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lives []string
	for _, r := range c.conns[name] {
		lives = append(lives, states(r.healthOf(c.t, name)))
	}
	return strings.Join(lives, " / ")
}

// healthy waits until the member has said in its last life that it is.
func (c *crew) healthy(name string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(c.healths(name), "healthy"); {
		if time.Now().After(end) {
			c.t.Fatalf("health of %s: %s", name, c.healths(name))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// steadily is a member that works until it is stopped.
func (c *crew) steadily(name string, began chan<- struct{}) Spec {
	return Spec{Name: name, Run: func(ctx context.Context, env Env) error {
		c.diary.note("%s began", name)
		if began != nil {
			began <- struct{}{}
		}
		<-ctx.Done()
		c.diary.note("%s stopped", name)
		return ctx.Err()
	}}
}

func TestAMemberThatFailsIsStartedAgainAlone(t *testing.T) {
	for want, fail := range map[string]func() error{
		":no disk":               func() error { return errors.New("no disk") },
		"":                       func() error { return nil },
		":panic: no; disk":       func() error { panic("no\ndisk") },
		":panic: second":         func() error { defer func() { panic("second") }(); panic("first") },
		":panic: short of disks": func() error { panic(errors.New("short of disks")) },
	} {
		t.Run(want, func(t *testing.T) {
			again := make(chan string, 1)
			life := 0
			c := startGroup(t, func(c *crew) []Spec {
				return []Spec{c.steadily("steady", nil), {Name: "frail", Run: func(ctx context.Context, env Env) error {
					if life++; life < 3 {
						return fail()
					}
					again <- get(t, filepath.Join(c.runDir, "metrics", "frail.sock"), "/metrics")
					<-ctx.Done()
					return ctx.Err()
				}}}
			})
			var page string
			select {
			case page = <-again:
			case err := <-c.done:
				t.Fatalf("the group ended: %v", err)
			}
			if !strings.Contains(page, `kubelot_build_info{daemon="frail"`) || strings.Contains(page, "go_goroutines") {
				t.Errorf("metrics of the third life: %s", page)
			}
			page = get(t, filepath.Join(c.runDir, "metrics", "steady.sock"), "/metrics")
			if !strings.Contains(page, "go_goroutines") || !strings.Contains(page, "process_resident_memory_bytes") {
				t.Errorf("the first member shows the process: %s", page)
			}
			got := c.diary.String()
			if strings.Count(got, "steady began") != 1 || strings.Count(got, "frail hung up") != 2 ||
				strings.Contains(got, "stopped") {
				t.Errorf("before the stop: %s", got)
			}
			c.healthy("frail")
			c.healthy("steady")
			c.stop()
			log, err := c.ended()
			if err != nil {
				t.Error(err)
			}
			if n := strings.Count(log, "ended=frail"); n != 2 || !strings.Contains(log, "pause=200ms") {
				t.Errorf("%d failures in the log:\n%s", n, log)
			}
			lives := strings.Split(c.healths("frail"), " / ")
			if len(lives) != 3 || lives[2] != "healthy stopped" {
				t.Errorf("health of each life: %q", lives)
			}
			for _, life := range lives[:2] {
				// That it was healthy for a moment may not have been said.
				if life = strings.TrimPrefix(life, "healthy "); life != "stopped"+want {
					t.Errorf("health of a life that failed: %q", life)
				}
			}
			if got := c.healths("steady"); got != "healthy stopped" {
				t.Errorf("health of the other member: %q", got)
			}
		})
	}
}

// Two lives of a daemon must not run at once, so that a panic that leaves something running ends the group.
func TestAPanicThatLeavesAGoroutineEndsTheGroup(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	c := startGroup(t, func(c *crew) []Spec {
		c.leave = 100 * time.Millisecond
		return []Spec{c.steadily("steady", nil), {Name: "frail", Run: func(context.Context, Env) error {
			c.diary.note("frail began")
			go stayBehind(free)
			panic("no disk")
		}}}
	})
	log, err := c.ended()
	text := fmt.Sprint(err)
	if !strings.Contains(text, "can't restart daemon frail alone") || !strings.Contains(text, "stayBehind") {
		t.Errorf("error %v", err)
	}
	got := c.diary.String()
	if !strings.Contains(log, "group ended") || strings.Count(got, "frail began") != 1 ||
		!strings.Contains(got, "steady stopped") {
		t.Errorf("%s\n%s", got, log)
	}
}

func stayBehind(free <-chan struct{}) { <-free }

func TestTheBusStartsFirstAndStopsLast(t *testing.T) {
	next := systemdSocket(t)
	ready := make(chan struct{}, 2)
	c := startGroup(t, func(c *crew) []Spec {
		bus := func(ctx context.Context, env Env) error {
			c.diary.note("bus began")
			// As long as it isn't up, nobody else begins.
			time.Sleep(50 * time.Millisecond)
			server, client := net.Pipe()
			defer env.InProcess.Serve(func() (net.Conn, error) { return client, nil })()
			defer server.Close()
			c.diary.note("bus up")
			env.Health.Set(topic.Healthy, "")
			<-ctx.Done()
			c.diary.note("bus stops")
			return ctx.Err()
		}
		return []Spec{c.steadily("a", ready), c.steadily("b", ready), {Name: "bus", WithoutBus: true, Run: bus}}
	})
	<-ready
	<-ready
	expect(t, next, "STATUS=a starting; b starting")
	if second := next(); !strings.HasSuffix(second, " starting") {
		t.Errorf("systemd was told %q", second)
	}
	expect(t, next, "READY=1|STATUS=healthy")
	c.stop()
	expect(t, next, "STOPPING=1")
	if log, err := c.ended(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	got := c.diary.String()
	ordered := strings.HasPrefix(got, "bus began, bus up, ") && strings.HasSuffix(got, ", bus stops")
	if !ordered || strings.Count(got, "stopped") != 2 {
		t.Errorf("order: %s", got)
	}
}

func TestAMemberThatDoesNotStopInOrderShows(t *testing.T) {
	began := make(chan struct{})
	c := startGroup(t, func(c *crew) []Spec {
		return []Spec{c.steadily("steady", nil), {Name: "frail", Run: func(ctx context.Context, _ Env) error {
			close(began)
			<-ctx.Done()
			return errors.New("no disk")
		}}}
	})
	<-began
	c.stop()
	if _, err := c.ended(); err == nil || err.Error() != "daemon frail: no disk" {
		t.Errorf("error %v", err)
	}
}

func TestFlagsOfAllMembers(t *testing.T) {
	var one, two string
	seen := make(chan Env, 1)
	c := startGroup(t, func(c *crew) []Spec {
		a, b := c.steadily("a", nil), c.steadily("b", nil)
		a.Flags = func(fs *pflag.FlagSet) { fs.StringVar(&one, "one", "", "") }
		b.Flags = func(fs *pflag.FlagSet) { fs.StringVar(&two, "two", "", "") }
		run := b.Run
		b.Run = func(ctx context.Context, env Env) error { seen <- env; return run(ctx, env) }
		return []Spec{a, b}
	}, "--one=1", "--two=2", "--max-pods=7")
	env := <-seen
	if one != "1" || two != "2" || env.Config.Kubelet.MaxPods != 7 || env.Flags["two"] != "2" {
		t.Errorf("flags %q and %q, %d pods, %v", one, two, env.Config.Kubelet.MaxPods, env.Flags["two"])
	}
	c.stop()
	if _, err := c.ended(); err != nil {
		t.Error(err)
	}
}

func TestInProcess(t *testing.T) {
	var none *InProcess
	none.Serve(nil)()
	p := &InProcess{}
	if _, err := p.Dial(t.Context()); !errors.Is(err, errNoBus) {
		t.Errorf("before the bus: %v", err)
	}
	first := errors.New("first")
	second := errors.New("second")
	endFirst := p.Serve(func() (net.Conn, error) { return nil, first })
	if _, err := p.Dial(t.Context()); !errors.Is(err, first) {
		t.Errorf("first: %v", err)
	}
	endSecond := p.Serve(func() (net.Conn, error) { return nil, second })
	endFirst() // late
	if _, err := p.Dial(t.Context()); !errors.Is(err, second) {
		t.Errorf("second: %v", err)
	}
	endSecond()
	if _, err := p.Dial(t.Context()); !errors.Is(err, errNoBus) {
		t.Errorf("after the bus: %v", err)
	}
}
