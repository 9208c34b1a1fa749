package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/services/podsync/internal/source/manifest"
)

// rest is how long a file must not have changed where the kernel doesn't report that its writer has closed it.
const rest = 200 * time.Millisecond

// tray is the manifests of a directory, or the one of a file, as last read. It knows no clock and starts nothing.
type tray struct {
	path, node string
	problems   *problems
	good       lastGood
	files      map[string]*file
	scanned    bool
	// owners are the files whose pod counts, by the pod's name.
	owners map[string]string
}

// file is one manifest as last read.
type file struct {
	stamp stamp
	// pod is the last good one.
	pod *corev1.Pod
	// trouble is why the bytes of stamp can't be used, or what is odd about them.
	trouble string
	warning bool
}

// stamp distinguishes one state of a file from another.
type stamp struct {
	ino, size, mtime int64
}

// activity is what the kernel reported of writers since the last scan.
type activity struct {
	// writing are the files that were written to and not closed since.
	writing map[string]bool
	// closed are the files that were closed by a writer or moved into place.
	closed map[string]bool
}

func newTray(path, node string, good lastGood, p *problems) *tray {
	return &tray{
		path: filepath.Clean(path), node: node, problems: p, good: good, files: map[string]*file{},
		owners: map[string]string{},
	}
}

// scan reads what has changed. A positive again asks for another scan after that time.
func (t *tray) scan(now time.Time, act activity) (pods []*corev1.Pod, again time.Duration, err error) {
	paths, err := t.list()
	if err != nil {
		return nil, 0, err
	}
	if !t.scanned {
		t.scanned = true
		t.good.keep(paths)
	}
	present := map[string]bool{}
	for _, p := range paths {
		present[p] = true
		again = soonest(again, t.look(p, now, act))
	}
	for p := range t.files {
		if !present[p] {
			t.forget(p)
		}
	}
	return t.pods(), again, nil
}

// forget drops a manifest that is gone. Problems of the path as a whole stay reported.
func (t *tray) forget(p string) {
	delete(t.files, p)
	t.good.remove(p)
	if p != t.path {
		t.problems.set(p, "", false)
	}
}

// soonest is the shorter of two delays, where 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// list are the manifests' paths, sorted.
func (t *tray) list() ([]string, error) {
	info, err := os.Stat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.problems.set(t.path, "it does not exist, so there are no static pods: create it, or unset staticPodPath", true)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the static pods: %w", err)
	case !info.IsDir():
		return []string{t.path}, nil
	}
	t.problems.set(t.path, "", false)
	entries, err := os.ReadDir(t.path)
	if err != nil {
		return nil, fmt.Errorf("read the static pods: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(t.path, e.Name()))
		}
	}
	return paths, nil
}

// look reads one manifest if it has changed and nobody is at work on it.
func (t *tray) look(p string, now time.Time, act activity) (again time.Duration) {
	info, err := os.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		// It went since it was listed, or it is a dangling link: no manifest.
		t.forget(p)
		return 0
	}
	f := t.files[p]
	if f == nil {
		f = &file{}
		f.pod, _, _ = manifest.Pod(t.good.read(p), t.origin(p)) // nil without an earlier run
		t.files[p] = f
	}
	if err != nil {
		f.stamp, f.trouble, f.warning = stamp{}, err.Error(), false
		return 0
	}
	s := stampOf(info)
	if s == f.stamp {
		return 0
	}
	age := now.Sub(info.ModTime())
	if act.writing[p] && age < patience {
		// The kernel reports when the writer is done; one that only keeps the file open is not waited for.
		return patience
	}
	if !act.closed[p] && age >= 0 && age < rest {
		return rest - age
	}
	data, trouble := read(p, info)
	if after, err := os.Stat(p); err != nil || stampOf(after) != s {
		return rest
	}
	f.stamp = s
	t.take(p, f, data, trouble)
	return 0
}

// read is the content of a regular file of a sane size.
func read(p string, info fs.FileInfo) (data []byte, trouble string) {
	switch {
	case info.IsDir():
		return nil, "it is a directory: manifests are read from the directory itself, not from those in it"
	case !info.Mode().IsRegular():
		return nil, "it is neither a file nor a link to one: a manifest must be"
	case info.Size() > manifest.MaxBytes:
		return nil, fmt.Sprintf("it is larger than %d MiB: a manifest holds one pod", manifest.MaxBytes>>20)
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, err.Error()
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return nil, err.Error()
	}
	return data, ""
}

// take makes a pod of new content. What can't be used leaves the last good pod in place.
func (t *tray) take(p string, f *file, data []byte, trouble string) {
	f.trouble, f.warning = trouble, false
	if trouble != "" {
		return
	}
	pod, warnings, err := manifest.Pod(data, t.origin(p))
	if err != nil {
		f.trouble = err.Error()
		return
	}
	if err := t.good.write(p, data); err != nil {
		warnings = append(warnings, "if it is broken later, a restart of podsync ends its pod: "+err.Error())
	}
	if len(warnings) > 0 {
		f.trouble, f.warning = strings.Join(warnings, "; "), true
	}
	if f.pod == nil || !equality.Semantic.DeepEqual(f.pod, pod) {
		f.pod = pod
	}
}

func (t *tray) origin(p string) manifest.Origin { return manifest.Origin{File: p, NodeName: t.node} }

// pods are the last good pods in the order of their files. Of two with one name the one that was there first
// stays, so that a copy of a manifest doesn't disturb the pod it was copied from.
func (t *tray) pods() []*corev1.Pod {
	paths := make([]string, 0, len(t.files))
	for p := range t.files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	owners := map[string]string{}
	for key, p := range t.owners {
		if f := t.files[p]; f != nil && f.pod != nil && slices.Contains(keys(f.pod), key) {
			owners[key] = p
		}
	}
	var pods []*corev1.Pod
	for _, p := range paths {
		f := t.files[p]
		trouble, warning := f.trouble, f.warning
		if f.pod != nil {
			if rival := claim(owners, p, f.pod); rival == "" {
				pods = append(pods, f.pod)
			} else if trouble == "" || warning {
				trouble, warning = fmt.Sprintf("the pod %s/%s has the same name or UID as the one in %s, and is left out: "+
					"rename it, or remove one of the files", f.pod.Namespace, f.pod.Name, rival), false
			}
		}
		t.problems.set(p, trouble, warning)
	}
	t.owners = owners
	return pods
}

// keys are what must be a pod's own: its name and its UID.
func keys(pod *corev1.Pod) []string {
	return []string{pod.Namespace + "/" + pod.Name, string(pod.UID)}
}

// claim makes the file the owner of its pod's keys, or names the file that has one of them.
func claim(owners map[string]string, p string, pod *corev1.Pod) (rival string) {
	for _, key := range keys(pod) {
		if owner, taken := owners[key]; taken && owner != p {
			return owner
		}
	}
	for _, key := range keys(pod) {
		owners[key] = p
	}
	return ""
}
