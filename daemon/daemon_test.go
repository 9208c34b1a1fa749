package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a transport that is always connected and keeps what is published.
type recorder struct {
	bus.Transport
	mu       sync.Mutex
	messages []bus.Message
	away     bool
}

func (r *recorder) Publish(ctx context.Context, m bus.Message) error {
	if r.away {
		<-ctx.Done()
		return bus.ErrDisconnected
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, m)
	return nil
}

func (r *recorder) Connects(context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	return c
}

func (r *recorder) Close() {}

func (r *recorder) health(t *testing.T) []topic.DaemonHealth {
	t.Helper()
	return r.healthOf(t, "test")
}

func (r *recorder) healthOf(t *testing.T, daemon string) []topic.DaemonHealth {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []topic.DaemonHealth
	for _, m := range r.messages {
		if m.Subject != "health."+daemon {
			continue
		}
		var h topic.DaemonHealth
		if err := json.Unmarshal(m.Data, &h); err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

func states(all []topic.DaemonHealth) string {
	var text []string
	for _, h := range all {
		text = append(text, strings.TrimSuffix(string(h.State)+":"+h.Message, ":"))
	}
	return strings.Join(text, " ")
}

func testEnv(r *recorder) (Env, *bus.Conn) {
	log := slog.New(slog.DiscardHandler)
	conn := bus.NewConn(r, "test", log)
	return NewEnv(Spec{Name: "test"}, &config.Config{}, conn, log), conn
}

func TestADaemonWhoseLoopHangsIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		env, conn := testEnv(r)
		defer conn.Close()
		spec := Spec{Name: "test", Run: func(ctx context.Context, env Env) error {
			loop := make(chan func())
			env.Pulse.Of(ctx, loop)
			for end := time.After(65 * time.Second); end != nil; {
				select {
				case f := <-loop:
					f()
				case <-end:
					end = nil
				}
			}
			time.Sleep(10 * time.Minute)
			return errors.New("it hung")
		}}
		if err := RunWith(t.Context(), spec, env); err == nil {
			t.Fatal("no error")
		}
		if got := states(r.health(t)); got != "healthy healthy healthy stopped:it hung" {
			t.Errorf("health: %s", got)
		}
	})
}

func TestRunWithReportsHealthUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		env, conn := testEnv(r)
		defer conn.Close()
		spec := Spec{Name: "test", Run: func(_ context.Context, env Env) error {
			synctest.Wait()
			env.Health.Set(topic.Degraded, "half")
			env.Health.Set(topic.Degraded, "half")
			time.Sleep(65 * time.Second)
			env.Health.Set(topic.Healthy, "")
			synctest.Wait()
			return errors.New("broken pipe")
		}}
		if err := RunWith(t.Context(), spec, env); err == nil || err.Error() != "broken pipe" {
			t.Fatalf("error %v", err)
		}
		all := r.health(t)
		want := "healthy degraded:half degraded:half degraded:half healthy stopped:broken pipe"
		if got := states(all); got != want {
			t.Fatalf("health: %s\nwant:   %s", got, want)
		}
		if beat := all[3].Beat.Sub(all[1].Beat); beat != 60*time.Second {
			t.Errorf("third beat after %v, want 60s", beat)
		}
		if !all[3].Since.Equal(all[1].Since) || all[0].PID != os.Getpid() || all[0].Version == "" || all[0].Started.IsZero() {
			t.Errorf("details: %+v", all[3])
		}
	})
}

func TestRunWithDoesNotWaitLongForABusThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, conn := testEnv(&recorder{away: true})
		defer conn.Close()
		begin := time.Now()
		if err := RunWith(t.Context(), Spec{Run: func(context.Context, Env) error { return nil }}, env); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > flushTimeout {
			t.Errorf("stopping took %v", took)
		}
	})
}

func TestEventsCarryTheDaemonsNameAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		env, conn := testEnv(r)
		defer conn.Close()
		env.Events.Record(topic.Event{Kind: "Pod", Reason: "Started"})
		if err := conn.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var e topic.Event
		if err := json.Unmarshal(r.messages[0].Data, &e); err != nil {
			t.Fatal(err)
		}
		if r.messages[0].Subject != "event.test" || e.Reason != "Started" || !e.At.Equal(time.Now()) {
			t.Errorf("%s %+v", r.messages[0].Subject, e)
		}
	})
}

// start runs a daemon as a process would, and returns its exit code and what it wrote.
func start(t *testing.T, run func(context.Context, Env) error, args ...string) (code int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := process{
		spec: Spec{Name: "test", Doc: "Tests.", Run: run}, stderr: out,
		dial: func(context.Context, Spec, *config.Config, *slog.Logger) (bus.Transport, error) {
			return &recorder{}, nil
		},
	}
	code = p.main(append([]string{"--run-dir=" + dir, "--hostname-override=n"}, args...), io.Discard)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

func TestProcess(t *testing.T) {
	untilStopped := func(ctx context.Context, _ Env) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		run  func(context.Context, Env) error
		args []string
		code int
		want []string
	}{
		"stopped by a signal": {run: untilStopped, code: 0, want: []string{
			`msg="daemon stopped"`,
			`cause="stopped by signal: terminated"`,
		}},
		"JSON": {
			run: untilStopped, args: []string{"--logging-format=json"}, code: 0,
			want: []string{`"msg":"daemon stopped"`, `"daemon":"test"`},
		},
		"fails": {
			run: func(context.Context, Env) error { return errors.New("no disk") }, code: 1,
			want: []string{"kubelot-test: no disk"},
		},
		"ends by itself": {
			run: func(context.Context, Env) error { return nil }, code: 1,
			want: []string{"although nothing asked it to"},
		},
		"bad flag": {args: []string{"--nonsense"}, code: 1, want: []string{"unknown flag: --nonsense"}},
		"bad configuration": {
			args: []string{"--max-pods=-1"}, code: 1,
			want: []string{"maxPods (set in the command line) is -1"},
		},
		"bad log style": {args: []string{"--log-style=loud"}, code: 1, want: []string{`"loud"`}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stderr := start(t, c.run, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error lacks %q:\n%s", want, stderr)
				}
			}
		})
	}
}

func TestMetricsSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "metrics", "test.sock")
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo("test"))
	for round := range 2 { // the second finds the socket of the first
		m, err := serveMetrics(t.Context(), socket, registry, http.NewServeMux(), round == 1)
		if err != nil {
			t.Fatal(err)
		}
		if body := get(t, socket, "/metrics"); !strings.Contains(body, `kubelot_build_info{daemon="test"`) {
			t.Errorf("metrics: %s", body)
		}
		if served := strings.Contains(get(t, socket, "/debug/pprof/"), "goroutine"); served != (round == 1) {
			t.Errorf("round %d: profiles served: %v", round, served)
		}
		m.stop(t.Context())
	}
}

func get(t *testing.T, socket, path string) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://metrics" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestHumanLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(newHumanHandler(&out, slog.LevelInfo)).With("pod", "a b").WithGroup("g")
	log.Debug("hidden")
	log.Warn("odd", "n", 1, "empty", "", slog.Group("sub", "x", "1\x1b[2J"))
	got := out.String()
	got = got[strings.Index(got, "\x1b[33mW"):]
	want := "\x1b[33mW\x1b[0m odd \x1b[2mpod=\x1b[0m\"a b\" \x1b[2mg.n=\x1b[0m1 \x1b[2mg.empty=\x1b[0m\"\" " +
		"\x1b[2mg.sub.x=\x1b[0m\"1\\x1b[2J\"\n"
	if got != want {
		t.Errorf("line\n%q\nwant\n%q", got, want)
	}
}
