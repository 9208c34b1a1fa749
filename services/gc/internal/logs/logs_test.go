package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/tree"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestScenarios runs testdata. "go test -rewrite" writes the results again; read the difference before you keep it.
//
//	plan size=N [max=N] [files=N]   names of the files in the directory of 0.log; now is 2026-01-01 12:00:00
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			size, limit, files := int64(0), int64(100), 5
			for _, a := range d.CmdArgs {
				target := map[string]any{"size": &size, "max": &limit, "files": &files}[a.Key]
				if _, err := fmt.Sscan(a.Vals[0], target); err != nil {
					t.Fatal(err)
				}
			}
			s := plan(Policy{MaxSize: limit, MaxFiles: files}, "0.log", size, strings.Fields(d.Input), epoch)
			if s.None() {
				return "nothing\n"
			}
			return fmt.Sprintf("remove %v\ncompress %v\nrotate %q reopen=%v\n", s.Remove, s.Compress, s.Rotate, s.Reopen)
		})
	})
}

// runtime is a container runtime that writes to a log.
type runtime struct {
	t    *testing.T
	path string
	out  *os.File
	err  error
	// late makes it reopen the log and fail nevertheless.
	late bool
}

func (r *runtime) ReopenContainerLog(context.Context, string) error {
	if r.err != nil && !r.late {
		return r.err
	}
	out, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	_ = r.out.Close()
	r.out = out
	return r.err
}

func (r *runtime) write(text string) {
	if _, err := r.out.WriteString(text + "\n"); err != nil {
		r.t.Fatal(err)
	}
}

func newRuntime(t *testing.T) *runtime {
	path := filepath.Join(t.TempDir(), "0.log")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &runtime{t: t, path: path, out: out}
	t.Cleanup(func() { _ = r.out.Close() })
	return r
}

func (r *runtime) pass(at time.Duration) error {
	rotator := Rotator{Runtime: r, Policy: Policy{MaxSize: 10, MaxFiles: 4}}
	steps, _, err := rotator.Look(r.path, epoch.Add(at))
	if err != nil {
		return err
	}
	return rotator.Do(r.t.Context(), "id", r.path, steps)
}

// state is the directory's files with their content.
func (r *runtime) state() string {
	entries, err := os.ReadDir(filepath.Dir(r.path))
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		f, err := os.Open(filepath.Join(filepath.Dir(r.path), e.Name()))
		if err != nil {
			r.t.Fatal(err)
		}
		var in io.Reader = f
		if strings.HasSuffix(e.Name(), ".gz") {
			if in, err = gzip.NewReader(f); err != nil {
				r.t.Fatal(err)
			}
		}
		data, err := io.ReadAll(in)
		if err != nil {
			r.t.Fatal(err)
		}
		_ = f.Close()
		out = append(out, e.Name()+"="+strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", ","))
	}
	return strings.Join(out, " ")
}

func (r *runtime) want(want string) {
	r.t.Helper()
	if got := r.state(); got != want {
		r.t.Errorf("files %s\nwant  %s", got, want)
	}
}

func TestRotation(t *testing.T) {
	r := newRuntime(t)
	for i := range 5 {
		r.write(fmt.Sprintf("line number %d", i))
		if err := r.pass(time.Duration(i) * time.Minute); err != nil {
			t.Fatal(err)
		}
		r.write("x")
	}
	r.want("0.log=x 0.log.20260101-120200.gz=x,line number 2 0.log.20260101-120300.gz=x,line number 3 " +
		"0.log.20260101-120400=x,line number 4")
}

// Where the runtime can't open a new log the old one goes on; where it did and only said it couldn't, the new one does.
func TestReopenFails(t *testing.T) {
	r := newRuntime(t)
	r.err = errors.New("runtime is away")
	r.write("line number 0")
	if err := r.pass(0); err == nil || !strings.Contains(err.Error(), "runtime is away") {
		t.Errorf("error %v", err)
	}
	r.write("x")
	r.want("0.log=line number 0,x")
	r.late = true
	if err := r.pass(time.Minute); err == nil {
		t.Error("no error")
	}
	r.write("y")
	r.want("0.log=y 0.log.20260101-120100=line number 0,x")
}

// What was interrupted between the steps is mended.
func TestInterrupted(t *testing.T) {
	r := newRuntime(t)
	r.write("line number 0")
	// Killed after the rename: the runtime writes on, to the old file.
	if err := os.Rename(r.path, r.path+".20260101-110000"); err != nil {
		t.Fatal(err)
	}
	r.write("x")
	if err := r.pass(0); err != nil {
		t.Fatal(err)
	}
	r.write("y")
	r.want("0.log=y 0.log.20260101-110000=line number 0,x")
	// Killed while compressing, and after it.
	for name, text := range map[string]string{
		".20260101-110000.tmp": "half", ".20260101-100000": "twice",
		".20260101-100000.gz": "",
	} {
		if err := os.WriteFile(r.path+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(r.path + ".20260101-100000.gz"); err != nil {
		t.Fatal(err)
	}
	if err := compress(t.Context(), r.path+".20260101-100000"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path+".20260101-100000", []byte("twice"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.pass(time.Minute); err != nil {
		t.Fatal(err)
	}
	r.want("0.log=y 0.log.20260101-100000.gz=twice 0.log.20260101-110000=line number 0,x")
}

// A log that can't be compressed is kept, and the log is rotated nevertheless.
func TestCompressionFails(t *testing.T) {
	r := newRuntime(t)
	r.write("line number 0")
	old := r.path + ".20260101-110000"
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A directory in the place of the compressed log's temporary file.
	if err := os.MkdirAll(filepath.Join(old+temporary, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.pass(0); err == nil || !strings.Contains(err.Error(), "stays as it is") {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(old); err != nil || string(data) != "old" {
		t.Errorf("the log is %q, %v", data, err)
	}
	if data, err := os.ReadFile(r.path + ".20260101-120000"); err != nil || string(data) != "line number 0\n" {
		t.Errorf("the rotated log is %q, %v", data, err)
	}
}

func TestLookRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "0.log")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Rotator{}).Look(filepath.Join(dir, "0.log"), epoch); err == nil {
		t.Error("a link is taken for a log")
	}
	if _, _, err := (Rotator{}).Look(filepath.Join(dir, "absent", "0.log"), epoch); err == nil {
		t.Error("a directory that is absent is no error")
	}
}

func TestLeftovers(t *testing.T) {
	root := t.TempDir()
	pods, links := filepath.Join(root, "pods"), filepath.Join(root, "links")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if dirs, err := Dirs(pods, func(string) bool { return false }, time.Now()); err != nil || len(dirs) != 0 {
		t.Errorf("without a directory: %v, %v", dirs, err)
	}
	for _, dir := range []string{"default_gone_u1/app", "default_there_u2", "default_odd", "a_b_c_d", "__"} {
		must(os.MkdirAll(filepath.Join(pods, dir), 0o755))
	}
	must(os.WriteFile(filepath.Join(pods, "default_file_u3"), nil, 0o600))
	known := func(uid string) bool { return uid == "u2" }
	if dirs, err := Dirs(pods, known, time.Now()); err != nil || len(dirs) != 0 {
		t.Errorf("young directories: %+v, %v", dirs, err)
	}
	later := time.Now().Add(time.Hour)
	dirs, err := Dirs(pods, known, later)
	if err != nil || len(dirs) != 1 || *dirs[0].Pod != (topic.Ref{Namespace: "default", Name: "gone", UID: "u1"}) {
		t.Fatalf("directories of nobody: %+v, %v", dirs, err)
	}

	outside := filepath.Join(root, "outside")
	must(os.WriteFile(outside, []byte("keep"), 0o600))
	must(os.Symlink(outside, filepath.Join(dirs[0].Object, "app", "link")))
	must(os.MkdirAll(links, 0o755))
	for name, target := range map[string]string{
		"gone": filepath.Join(pods, "x/0.log"), "used": filepath.Join(pods, "y/0.log"),
		"there": filepath.Join(pods, "default_there_u2"), "other": "/nowhere",
		"coming": filepath.Join(pods, "default_there_u2/app/0.log"),
	} {
		must(os.Symlink(target, filepath.Join(links, name)))
	}
	inUse := map[string]bool{filepath.Join(pods, "y/0.log"): true}
	if found, err := Links(links, pods, inUse, known, time.Now()); err != nil || len(found) != 0 {
		t.Errorf("young links: %+v, %v", found, err)
	}
	found, err := Links(links, pods, inUse, known, time.Now().Add(time.Minute)) // a log of a pod may still come
	if err != nil || len(found) != 1 || found[0].Object != filepath.Join(links, "gone") {
		t.Errorf("links to logs that are gone: %+v, %v", found, err)
	}

	must(tree.Remove(t.Context(), dirs[0].Object))
	if data, err := os.ReadFile(outside); err != nil || string(data) != "keep" {
		t.Errorf("what a link led to: %q, %v", data, err)
	}
}

func TestRemoveOf(t *testing.T) {
	root := t.TempDir()
	pods, links := filepath.Join(root, "pods"), filepath.Join(root, "links")
	dir := filepath.Join(pods, "default_web_u1", "app")
	for _, d := range []string{dir, links} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1.log", "1.log.20260101-120000", "1.log.20260101-110000.gz", "11.log", "2.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"a": "1.log", "b": "2.log"} {
		if err := os.Symlink(filepath.Join(dir, target), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	ref := topic.Ref{Namespace: "default", Name: "web", UID: "u1"}
	if err := RemoveOf(pods, links, ref, "app", 1); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"11.log", "2.log"}; !slices.Equal(got, want) {
		t.Errorf("logs %q, want %q", got, want)
	}
	if got := names(t, links); !slices.Equal(got, []string{"b"}) {
		t.Errorf("links %q", got)
	}
	for _, name := range []string{"../../../etc", "a/b", ".."} {
		if err := RemoveOf(pods, links, ref, name, 1); err == nil {
			t.Errorf("container %q", name)
		}
	}
	if err := RemoveOf(pods, links, ref, "absent", 1); err != nil {
		t.Errorf("without logs: %v", err)
	}
}

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
