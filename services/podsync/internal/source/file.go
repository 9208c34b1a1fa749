package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const (
	// gather is how long notes are gathered before a scan: editors move a file away and write it again, and the
	// pod must not follow.
	gather = 20 * time.Millisecond
	// unwatched is how often a path is looked at that can't be watched, as when it doesn't exist yet.
	unwatched = time.Second
)

// patience is how long the first set waits for manifests that are being written. It is a variable for tests only.
var patience = 5 * time.Second

// FileConfig is the manifest directory or file (staticPodPath).
type FileConfig struct {
	// Path is a directory or a single manifest.
	Path string
	// Every is how often the path is read without a notice of a change (fileCheckFrequency); it
	// must be positive.
	Every    time.Duration
	NodeName string
	// LastGood is a directory of the source's own, for copies of the manifests that outlive the process and no reboot;
	// empty for none.
	LastGood string
	// Problem is called for each manifest that can't be used, from the goroutine of Run; it must not block.
	Problem func(Problem)
}

// File is the source of static pods in files.
type File struct{ cfg FileConfig }

// NewFile returns the source; it reads nothing before Run.
func NewFile(cfg FileConfig) *File {
	cfg.Path = filepath.Clean(cfg.Path)
	return &File{cfg: cfg}
}

// Name is "file".
func (f *File) Name() topic.Source { return topic.SourceFile }

// Run delivers a set at once and after every change.
func (f *File) Run(ctx context.Context, out chan<- Set) error {
	r := &fileRun{
		cfg: f.cfg, began: time.Now(), tray: newTray(f.cfg.Path, f.cfg.NodeName, lastGood(f.cfg.LastGood),
			newProblems(topic.SourceFile, f.cfg.Problem)),
		act: activity{writing: map[string]bool{}, closed: map[string]bool{}},
	}
	defer r.unwatch()
	for ctx.Err() == nil {
		// Watching begins before reading, so that no change falls between the two.
		r.watch()
		again := r.scan(ctx, out)
		r.wait(ctx, again)
	}
	return ctx.Err()
}

// fileRun is the state of one Run.
type fileRun struct {
	cfg     FileConfig
	began   time.Time
	tray    *tray
	act     activity
	watcher *watcher
	// sent is true once a set was delivered; last and failed are the last one's content.
	sent   bool
	last   []*corev1.Pod
	failed string
}

// watch watches the directory, or the one that holds the file: what is moved over a file isn't seen by a
// watch of the file itself.
func (r *fileRun) watch() {
	if r.watcher != nil {
		return
	}
	dir := r.cfg.Path
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	w, err := watch(dir)
	where := r.cfg.Path + " (watch)"
	switch {
	case err == nil:
		r.watcher = w
		r.tray.problems.set(where, "", false)
	case !errors.Is(err, fs.ErrNotExist):
		r.tray.problems.set(where, err.Error()+": polling for changes until then", true)
	}
}

func (r *fileRun) unwatch() {
	if r.watcher != nil {
		r.watcher.close()
		r.watcher = nil
		clear(r.act.writing)
	}
}

// scan delivers what is there if it isn't what was delivered last.
func (r *fileRun) scan(ctx context.Context, out chan<- Set) (again time.Duration) {
	pods, again, err := r.tray.scan(time.Now(), r.act)
	clear(r.act.closed)
	if err != nil {
		if r.failed != err.Error() {
			r.failed = err.Error()
			send(ctx, out, Set{Source: topic.SourceFile, Err: err})
		}
		return 0
	}
	if r.sent && r.failed == "" && slices.Equal(r.last, pods) {
		return again
	}
	// The first set waits for files that are just being written, or their pods would look unwanted.
	busy := again > 0 || len(r.act.writing) > 0
	if !r.sent && busy && time.Since(r.began) < patience {
		return soonest(again, rest)
	}
	r.sent, r.last, r.failed = true, pods, ""
	send(ctx, out, Set{Source: topic.SourceFile, Pods: pods})
	return again
}

// wait returns when it is time for another scan.
func (r *fileRun) wait(ctx context.Context, again time.Duration) {
	every := r.cfg.Every
	var notes <-chan note
	if r.watcher != nil {
		notes = r.watcher.notes
	} else {
		every = min(every, unwatched)
	}
	timer := time.NewTimer(soonest(every, again))
	defer timer.Stop()
	gathering := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case n, ok := <-notes:
			if !ok || n.gone() {
				r.unwatch()
				return
			}
			if n.path != "" && strings.HasPrefix(filepath.Base(n.path), ".") {
				continue
			}
			n.apply(&r.act)
			if !gathering {
				gathering = true
				timer.Reset(gather)
			}
		}
	}
}
