package source

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// start runs a source and answers with a function that waits for its next set.
func start(t *testing.T, s Source) (next func() Set) {
	ctx, cancel := context.WithCancel(context.Background())
	out, ended := make(chan Set), make(chan error, 1)
	go func() { ended <- s.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return func() Set {
		t.Helper()
		select {
		case set := <-out:
			return set
		case <-time.After(time.Minute):
			t.Fatal("no set came")
			return Set{}
		}
	}
}

func images(s Set) string {
	var list []string
	for _, p := range s.Pods {
		list = append(list, p.Spec.Containers[0].Image)
	}
	return strings.Join(list, " ")
}

func TestFileRunFollowsTheKernel(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	old := time.Now().Add(-time.Hour)
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(yaml("web", "w:1"))
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	before := patience
	patience = time.Minute
	t.Cleanup(func() { patience = before })
	// Polling is a day away: all that comes, comes by inotify.
	next := start(t, NewFile(FileConfig{Path: dir, NodeName: "node-1", Every: 24 * time.Hour}))
	if set := next(); images(set) != "w:1" || set.Source != topic.SourceFile || set.Err != nil {
		t.Fatalf("the first set is %+v", set)
	}
	write(yaml("web", "w:2"))
	if set := next(); images(set) != "w:2" {
		t.Errorf("after a write: %s", images(set))
	}
	// A writer that pauses in the middle of a manifest, at a place where it is valid already.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(yaml("web", "half"))
	other := filepath.Join(dir, ".other")
	os.WriteFile(other, []byte(yaml("other", "o:1")), 0o600)
	os.Rename(other, filepath.Join(dir, "other.yaml"))
	if set := next(); images(set) != "o:1 w:2" {
		t.Errorf("while a manifest is being written: %s", images(set))
	}
	f.Close()
	if set := next(); images(set) != "o:1 half" {
		t.Errorf("after the close: %s", images(set))
	}
	os.Remove(path)
	if set := next(); images(set) != "o:1" {
		t.Errorf("after the removal: %s", images(set))
	}
}

func TestFileRunWithoutDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	var told atomic.Int32
	next := start(t, NewFile(FileConfig{
		Path: dir, NodeName: "node-1", Every: 20 * time.Millisecond,
		Problem: func(Problem) { told.Add(1) },
	}))
	if set := next(); set.Err != nil || len(set.Pods) != 0 {
		t.Fatalf("the first set is %+v", set)
	}
	if told.Load() != 1 {
		t.Errorf("told %d times", told.Load())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(yaml("web", "w:1")), 0o600)
	if set := next(); images(set) != "w:1" {
		t.Errorf("after the directory came: %s", images(set))
	}
	os.RemoveAll(dir)
	if set := next(); len(set.Pods) != 0 {
		t.Errorf("after the directory went: %s", images(set))
	}
}

func TestAPIRun(t *testing.T) {
	next := start(t, NewAPI(func(ctx context.Context, handle func([]*corev1.Pod)) error {
		handle([]*corev1.Pod{pod("a", "1")})
		<-ctx.Done()
		return ctx.Err()
	}))
	if set := next(); set.Source != topic.SourceAPI || len(set.Pods) != 1 {
		t.Errorf("the set is %+v", set)
	}
}

func TestURL(t *testing.T) {
	var answer func(w http.ResponseWriter, r *http.Request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var told []Problem
	r := &urlRun{
		cfg: NewURL(URLConfig{
			URL: server.URL, NodeName: "node-1", Client: http.DefaultClient,
			Header: http.Header{"X-Token": {"t"}},
		}).cfg,
		problems: newProblems(topic.SourceHTTP, func(p Problem) { told = append(told, p) }),
	}
	body := func(s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Token") != "t" {
				t.Error("the header was not sent")
			}
			w.Write([]byte(s))
		}
	}
	want := func(what string, changed bool, images_, err, problem string) {
		t.Helper()
		set, got := r.poll(context.Background())
		if got != changed || images(set) != images_ || (err == "") != (set.Err == nil) || err != "" &&
			!strings.Contains(set.Err.Error(), err) {
			t.Errorf("%s: changed %v, %q, %v", what, got, images(set), set.Err)
		}
		if (problem == "") != (len(told) == 0) || problem != "" && !strings.Contains(told[0].Message, problem) {
			t.Errorf("%s: told %v, want %q", what, told, problem)
		}
		told = nil
	}
	answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) }
	want("server error", true, "", "502", "")
	want("server error again", false, "", "502", "")
	answer = body(yaml("web", "w:1"))
	want("a pod", true, "w:1", "", "")
	want("the same pod", false, "", "", "")
	list := `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"%"}]}}]}`
	answer = body(strings.Replace(list, "%", "a:1", 1))
	want("a list", true, "a:1", "", "")
	answer = body("garbage: [")
	want("garbage", false, "", "", "not YAML")
	want("garbage again", false, "", "", "")
	answer = body(strings.Replace(list, "[{",
		`[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"b"}]}},{`, 1))
	want("two with one name", false, "", "", "two pods of the list")
	answer = body(strings.Repeat(" ", 11<<20))
	want("oversized", true, "", "larger than 10 MiB", "")
	answer = body("")
	want("empty", true, "", "", "the answer is empty")
	answer = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Write([]byte(yaml("web", "w:2")))
	}
	r.problems.known = map[string]string{}
	want("with an etag", true, "w:2", "", "")
	want("not modified", false, "", "", "")
}

func TestURLRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(yaml("web", "w:1")))
	}))
	defer server.Close()
	next := start(t, NewURL(URLConfig{URL: server.URL, Every: 20 * time.Second, NodeName: "node-1"}))
	if set := next(); images(set) != "w:1" || set.Source != topic.SourceHTTP {
		t.Errorf("the set is %+v", set)
	}
}

func FuzzParseNotes(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 'a', 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, n := range parseNotes("/d", b) {
			if n.path != "" && !strings.HasPrefix(n.path, "/") {
				t.Errorf("path %q", n.path)
			}
		}
	})
}
