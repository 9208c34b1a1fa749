package settings

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/daemon"
)

// answering are daemons that answer on their sockets; one without an answer is of an earlier release.
func answering(t *testing.T, answers map[string]*daemon.Reloaded) (runDir string) {
	t.Helper()
	runDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(runDir, "metrics"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, answer := range answers {
		mux := http.NewServeMux()
		if answer != nil {
			mux.HandleFunc(daemon.ReloadPath, func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			})
		}
		t.Cleanup(serve(t, filepath.Join(runDir, "metrics", name+".sock"), mux))
	}
	return runDir
}

// serve serves on a unix socket until stop is called.
func serve(t *testing.T, socket string, handler http.Handler) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with stop
	}()
	return func() {
		_ = server.Shutdown(context.Background()) // what has been answered is still sent
		<-done
	}
}

// A daemon that sleeps is woken to reload, and not by a question.
func TestReloadWakes(t *testing.T) {
	runDir := t.TempDir()
	socket := filepath.Join(runDir, "metrics", "resource.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	var asked []string
	posted := make(chan struct{})
	wake := sync.OnceFunc(func() { close(posted) })
	stop := serve(t, socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked = append(asked, r.Method); r.Method == http.MethodPost {
			defer wake()
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	crew := []Daemon{{Name: "resource", PID: 1}}
	if sentences, known := pending(t.Context(), crew, runDir); !known || len(sentences) > 0 {
		t.Errorf("of a daemon that sleeps is pending %q, %v", sentences, known)
	}
	awake := make(chan func())
	go func() {
		<-posted
		stop()
		awake <- serve(t, socket, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(daemon.Reloaded{Changed: []string{"maxPods"}}); err != nil {
				t.Error(err)
			}
		}))
	}()
	r := ReloadCrew(t.Context(), crew, runDir)
	(<-awake)()
	if d := r.Daemons[0]; d.Error != "" || !slices.Equal(d.Changed, []string{"maxPods"}) {
		t.Errorf("it answers %+v", d)
	}
	if !slices.Equal(slices.Compact(asked), []string{http.MethodGet, http.MethodPost}) {
		t.Errorf("while it slept it was asked %q", asked)
	}
}

func TestReloadCrew(t *testing.T) {
	fields := []string{"evictionHard", "maxPods", "oomScoreAdj"}
	runDir := answering(t, map[string]*daemon.Reloaded{
		"gc":    {Changed: fields, Taken: []string{"evictionHard"}},
		"lease": {Changed: fields, Restart: []string{"evictionHard", "maxPods"}},
		"pleg":  {Changed: fields},
	})
	crew := []Daemon{{Name: "gc", PID: 1}, {Name: "lease", PID: 2}, {Name: "pleg", PID: 3}}
	r := ReloadCrew(t.Context(), crew, runDir)
	want := `taken   evictionHard: by gc
restart evictionHard: taken by lease at the next start only
restart maxPods: taken by lease at the next start only
moot    oomScoreAdj: it concerns no daemon that runs
        -> systemctl restart kubelot-lease
           pods go on running; without systemd, start kubelot up again
`
	if got := ReloadText(r, paint.Painter{}); got != want {
		t.Errorf("text\n%s\nwant\n%s", got, want)
	}
	if len(r.Failed()) > 0 || len(r.Daemons) != 3 || r.Daemons[1].PID != 2 {
		t.Errorf("%+v", r)
	}
	data, err := json.Marshal(r.Fields)
	if want := `[{"name":"evictionHard","taken":["gc"],"restart":["lease"]},{"name":"maxPods","restart":["lease"]},` +
		`{"name":"oomScoreAdj"}]`; err != nil || string(data) != want {
		t.Errorf("%v: %s, want %s", err, data, want)
	}
}

// Daemons of one process are one unit, and restarting it once is enough.
func TestReloadOfACompactCrew(t *testing.T) {
	restart := &daemon.Reloaded{Changed: []string{"maxPods"}, Restart: []string{"maxPods"}}
	runDir := answering(t, map[string]*daemon.Reloaded{"podsync": restart, "status": restart})
	r := ReloadCrew(t.Context(), []Daemon{{Name: "podsync", PID: 5}, {Name: "status", PID: 5}}, runDir)
	if !slices.Equal(r.Units, []string{"kubelot-compact"}) {
		t.Errorf("units %q", r.Units)
	}
}

func TestReloadThatFails(t *testing.T) {
	wrong := &daemon.Reloaded{Error: "invalid configuration: maxPods is -1\nand more"}
	runDir := answering(t, map[string]*daemon.Reloaded{"gc": wrong, "lease": wrong, "old": nil})
	crew := []Daemon{{Name: "absent"}, {Name: "gc"}, {Name: "lease"}, {Name: "old"}}
	r := ReloadCrew(t.Context(), crew, runDir)
	if got := strings.Join(r.Failed(), " "); got != "absent gc lease old" {
		t.Errorf("failed: %s", got)
	}
	text := ReloadText(r, paint.Painter{})
	for _, want := range []string{
		"BAD     gc, lease: invalid configuration: maxPods is -1\n        and more\n",
		"BAD     absent: ask the daemon at ",
		"BAD     old: it can't reload (404 Not Found), since it is of an earlier release",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

func TestReloadOfNothing(t *testing.T) {
	runDir := answering(t, map[string]*daemon.Reloaded{"gc": {}})
	text := ReloadText(ReloadCrew(t.Context(), []Daemon{{Name: "gc"}}, runDir), paint.Painter{})
	if text != "same    the daemons run with this configuration already\n" {
		t.Errorf("text %q", text)
	}
}

// Daemons say themselves whether they run with what their files have; where one of them can't, the files' times count.
func TestAskStale(t *testing.T) {
	fresh, behind := &daemon.Reloaded{}, &daemon.Reloaded{Changed: []string{"evictionHard", "maxPods"}}
	for name, c := range map[string]struct {
		answers map[string]*daemon.Reloaded
		want    string
	}{
		"all reloaded": {map[string]*daemon.Reloaded{"gc": fresh, "lease": fresh}, ""},
		"one is behind": {
			map[string]*daemon.Reloaded{"gc": fresh, "lease": behind}, "lease runs with other values of evictionHard, maxPods",
		},
		"one can't say":   {map[string]*daemon.Reloaded{"gc": fresh, "lease": nil}, "by its time"},
		"one has trouble": {map[string]*daemon.Reloaded{"gc": fresh, "lease": {Error: "no"}}, "by its time"},
	} {
		r := &Running{Stale: []string{"by its time"}}
		r.AskStale(t.Context(), []Daemon{{Name: "gc"}, {Name: "lease"}}, answering(t, c.answers))
		if got := strings.Join(r.Stale, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var none *Running
	none.AskStale(t.Context(), nil, t.TempDir())
}
