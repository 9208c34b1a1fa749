package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

const configHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// reloadRig is a daemon of a name whose configuration file can be changed.
type reloadRig struct {
	t    *testing.T
	file string
	r    *reloader
	log  bytes.Buffer
	// refused is what its health was told last.
	refused error
}

func newReloadRig(t *testing.T, daemon, text string) *reloadRig {
	t.Helper()
	rig := &reloadRig{t: t, file: filepath.Join(t.TempDir(), "config.yaml")}
	rig.write(text)
	p := process{}
	command := p.command()
	if err := command.ParseFlags([]string{"--config=" + rig.file, "--hostname-override=n"}); err != nil {
		t.Fatal(err)
	}
	c, err := p.commandLine.flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	logs := &logOptions{style: styleText, libraries: &libraries{by: map[string]klogLevel{}}}
	t.Cleanup(func() { logs.setVerbosity(0) })
	logs.configure(c, daemon, false)
	rig.r = &reloader{
		daemon: daemon, load: p.commandLine.flags.Load, reloads: &Reloads{}, logs: logs,
		refused: func(err error) { rig.refused = err }, log: slog.New(slog.NewTextHandler(&rig.log, nil)), running: c,
	}
	return rig
}

func (rig *reloadRig) write(text string) {
	rig.t.Helper()
	if err := os.WriteFile(rig.file, []byte(configHeader+text), 0o600); err != nil {
		rig.t.Fatal(err)
	}
}

// reload is what a reload answers after the file was changed, in a line.
func (rig *reloadRig) reload(text string) string {
	rig.t.Helper()
	rig.write(text)
	w := httptest.NewRecorder()
	rig.r.serve(w, httptest.NewRequest(http.MethodPost, ReloadPath, nil))
	var out Reloaded
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Daemon != rig.r.daemon {
		rig.t.Fatalf("%v: %s", err, w.Body)
	}
	return "changed " + strings.Join(out.Changed, ",") + " taken " + strings.Join(out.Taken, ",") + " restart " +
		strings.Join(out.Restart, ",") + " error " + out.Error
}

// A daemon takes what it can take, with a configuration that has nothing else that is new. It names what it takes at
// its next start only, again and again, and leaves out what is the business of others.
func TestReload(t *testing.T) {
	rig := newReloadRig(t, "gc", "maxPods: 50\n")
	var given []string
	rig.r.reloads.Take(func(c *config.Config) error {
		if c.Kubelet.MaxPods != 50 || len(c.Kubelet.ShutdownGracePeriodByPodPriority) > 0 {
			t.Errorf("gc is given what it can't take: maxPods %d", c.Kubelet.MaxPods)
		}
		given = append(given, c.Kubelet.EvictionHard["memory.available"])
		return nil
	}, "evictionHard", "imageMinimumGCAge")
	hard := "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 300Mi}\n"
	for _, step := range []struct{ text, want string }{
		{"maxPods: 50\n", "changed  taken  restart  error "},
		{"maxPods: 60\n", "changed maxPods taken  restart  error "},
		{"maxPods: 60\n", "changed  taken  restart  error "},
		{"maxPods: 50\n", "changed maxPods taken  restart  error "},
		{
			hard + "maxPods: 60\nenforceNodeAllocatable: [none]\n",
			"changed enforceNodeAllocatable,evictionHard,maxPods,mergeDefaultEvictionSettings taken evictionHard restart " +
				"enforceNodeAllocatable,mergeDefaultEvictionSettings error ",
		},
	} {
		if got := rig.reload(step.text); got != step.want {
			t.Errorf("%q:\n%s\nwant\n%s", step.text, got, step.want)
		}
	}
	again := rig.reload(hard + "maxPods: 60\nenforceNodeAllocatable: [none]\n")
	want := "changed enforceNodeAllocatable,mergeDefaultEvictionSettings taken  restart " +
		"enforceNodeAllocatable,mergeDefaultEvictionSettings error "
	if again != want {
		t.Errorf("the second time:\n%s\nwant\n%s", again, want)
	}
	if got := strings.Join(given, " "); got != "300Mi" {
		t.Errorf("gc was given %q", got)
	}
}

// A wrong configuration changes nothing, and so does one that the daemon can't use. Both are told until they are gone.
func TestReloadOfAWrongConfiguration(t *testing.T) {
	rig := newReloadRig(t, "gc", "")
	var fails error
	rig.r.reloads.Take(func(*config.Config) error { return fails }, "evictionHard")
	hard := "evictionHard: {memory.available: 300Mi}\n"
	if got := rig.reload(hard + "logging: {verbosity: 5}\nmaxPods: -1\n"); !strings.Contains(got, "maxPods") {
		t.Errorf("a wrong configuration: %s", got)
	}
	if rig.refused == nil || !strings.Contains(rig.log.String(), "maxPods") || rig.r.logs.level.Level() != slog.LevelInfo {
		t.Errorf("health %v, level %v, log %s", rig.refused, rig.r.logs.level.Level(), rig.log.String())
	}
	fails = errors.New("no room")
	if got := rig.reload(hard + "logging: {verbosity: 5}\n"); got != "changed  taken  restart  error no room" {
		t.Errorf("one that the daemon can't use: %s", got)
	}
	if rig.refused == nil || rig.r.logs.level.Level() != slog.LevelInfo {
		t.Errorf("health %v, level %v", rig.refused, rig.r.logs.level.Level())
	}
	fails = nil
	want := "changed evictionHard,logging.verbosity taken evictionHard,logging.verbosity restart  error "
	if got := rig.reload(hard + "logging: {verbosity: 5}\n"); got != want || rig.refused != nil {
		t.Errorf("a right one: %s, health %v", got, rig.refused)
	}
	if got := rig.r.logs.level.Level(); got != slog.Level(-5) {
		t.Errorf("level %v", got)
	}
}

// Whoever only looks is told what concerns the daemon, and changes nothing.
func TestLookAtAReload(t *testing.T) {
	rig := newReloadRig(t, "gc", "")
	rig.r.reloads.Take(func(*config.Config) error {
		t.Error("a look has changed something")
		return nil
	}, "evictionHard")
	rig.write("evictionHard: {memory.available: 300Mi}\nmaxPods: 60\nlogging: {verbosity: 5}\n")
	for _, want := range []string{`["evictionHard","logging.verbosity"]`, `["evictionHard","logging.verbosity"]`} {
		w := httptest.NewRecorder()
		rig.r.serve(w, httptest.NewRequest(http.MethodGet, ReloadPath, nil))
		if want = `{"daemon":"gc","changed":` + want + "}\n"; w.Body.String() != want {
			t.Errorf("%s, want %s", w.Body, want)
		}
	}
	if got := rig.r.logs.level.Level(); got != slog.LevelInfo {
		t.Errorf("level %v", got)
	}
	rig.write("maxPods: -1\n")
	if out := rig.r.look(); !strings.Contains(out.Error, "maxPods") || rig.refused != nil {
		t.Errorf("a wrong configuration: %+v, health %v", out, rig.refused)
	}
}

// A reload doesn't undo a verbosity that was set by hand, unless the configured one has changed.
func TestReloadKeepsAVerbosityThatWasSetByHand(t *testing.T) {
	rig := newReloadRig(t, "pleg", "maxPods: 50\n")
	rig.r.logs.setVerbosity(6)
	rig.reload("maxPods: 60\n")
	if got := rig.r.logs.level.Level(); got != slog.Level(-6) {
		t.Errorf("level %v", got)
	}
}

// SIGHUP reloads, doesn't end the daemon, and its health names a wrong configuration until that is over.
func TestHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(configHeader+text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("")
	taken := make(chan string)
	r := &recorder{}
	run := func(ctx context.Context, env Env) error {
		env.Reloads.Take(func(c *config.Config) error {
			taken <- c.Kubelet.ContainerLogMaxSize
			return nil
		}, "containerLogMaxSize")
		hangUp := func(text string) {
			write(text)
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Error(err)
			}
		}
		hangUp("containerLogMaxSize: 20Mi\n")
		if got := <-taken; got != "20Mi" {
			t.Errorf("taken: %s", got)
		}
		hangUp("containerLogMaxSize: much\n")
		awaitHealth(t, r, "degraded:the changed configuration is not taken: ")
		hangUp("containerLogMaxSize: 30Mi\n")
		if got := <-taken; got != "30Mi" {
			t.Errorf("taken: %s", got)
		}
		awaitHealth(t, r, "healthy")
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := process{spec: Spec{Name: "test", Run: run}, stderr: out}
	p.dial = func(context.Context, Spec, *config.Config, *slog.Logger) (bus.Transport, error) { return r, nil }
	code := p.main([]string{"--run-dir=" + t.TempDir(), "--hostname-override=n", "--config=" + file}, &bytes.Buffer{})
	text, err := os.ReadFile(out.Name())
	if err != nil || code != 0 || !strings.Contains(string(text), "stopped by signal: terminated") {
		t.Errorf("exit code %d, %v, log\n%s", code, err, text)
	}
}

// awaitHealth waits until the last health of the daemon begins like this.
func awaitHealth(t *testing.T, r *recorder, want string) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	end := time.After(time.Minute)
	for {
		all := r.health(t)
		if len(all) > 0 && strings.HasPrefix(states(all[len(all)-1:]), want) {
			return
		}
		select {
		case <-ticker.C:
		case <-end:
			t.Errorf("health: %s, want %s", states(all), want)
			return
		}
	}
}

// In a group each member reloads, and a member that starts again takes the configuration of that moment.
func TestGroupReloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(configHeader+text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("")
	taken, lives := make(chan string, 10), make(chan string, 10)
	began := make(chan struct{}, 10)
	fall := make(chan struct{})
	member := func(name string) Spec {
		return Spec{Name: name, Run: func(ctx context.Context, env Env) error {
			env.Reloads.Take(func(c *config.Config) error {
				taken <- name + " " + c.Kubelet.ContainerLogMaxSize
				return nil
			}, "containerLogMaxSize")
			lives <- name + " " + env.Config.Kubelet.ContainerLogMaxSize
			env.Health.Set(topic.Healthy, "")
			began <- struct{}{}
			if name == "b" {
				select {
				case <-fall:
					return errors.New("it falls")
				case <-ctx.Done():
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}}
	}
	c := startGroup(t, func(*crew) []Spec { return []Spec{member("a"), member("b")} }, "--config="+file)
	<-began
	<-began
	write("containerLogMaxSize: 20Mi\n")
	c.group.hangups.reload()
	got := map[string]bool{<-taken: true, <-taken: true}
	if !got["a 20Mi"] || !got["b 20Mi"] {
		t.Errorf("taken: %v", got)
	}
	first := map[string]bool{<-lives: true, <-lives: true}
	fall <- struct{}{}
	if again := <-lives; again != "b 20Mi" {
		t.Errorf("the member starts again with %q; first lives %v", again, first)
	}
	c.stop()
	if log, err := c.ended(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}
