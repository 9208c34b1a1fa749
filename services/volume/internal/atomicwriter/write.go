package atomicwriter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

const (
	dataLink    = "..data"
	dataLinkNew = "..data_tmp"
)

// The permission bits that a volume's files and directories get with an fsGroup, and the mode of directories.
const (
	groupFile = 0o440
	dirMode   = 0o755
)

// Write makes p the content of the directory dir, which exists, and reports whether it changed anything
// that readers see.
func Write(dir string, p Payload, owner Owner) (changed bool, err error) {
	payload, err := clean(p)
	if err != nil {
		return false, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	w := writer{root: root, owner: owner}
	current := w.current()
	if current == "" || !w.same(current, payload) {
		changed = true
		if current, err = w.replace(payload); err != nil {
			return false, err
		}
	}
	shown, err := w.show(payload)
	if err != nil {
		return changed, err
	}
	return changed || shown, w.tidy(current, payload)
}

// Written reports whether the directory holds the files of an earlier Write.
func Written(dir string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }()
	return writer{root: root}.current() != ""
}

// Read returns the content of one file of a volume as it was written last.
func Read(dir, name string) ([]byte, error) {
	if err := checkPath(name); err != nil {
		return nil, fmt.Errorf("file path %q: %w", name, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return readAtMost(root, path.Join(dataLink, name), maxRead)
}

// maxRead is more than the API lets any file of a volume be.
const maxRead = 4 << 20

// readAtMost reads a regular file, and fails on one that is longer than limit: what containers can mount, a privileged
// one can also write.
func readAtMost(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", name, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

type writer struct {
	root  *os.Root
	owner Owner
}

// current is the name of the directory behind ..data; empty where there is none.
func (w writer) current() string {
	name, err := w.root.Readlink(dataLink)
	if err != nil || !strings.HasPrefix(name, "..") || name == ".." || strings.Contains(name, "/") {
		return ""
	}
	if info, err := w.root.Lstat(name); err != nil || !info.IsDir() {
		return ""
	}
	return name
}

// replace writes the payload into a new directory and makes ..data point to it.
func (w writer) replace(p Payload) (string, error) {
	name, err := w.newDir()
	if err != nil {
		return "", err
	}
	if err := w.fill(name, p); err != nil {
		return "", errors.Join(err, w.root.RemoveAll(name))
	}
	if err := w.root.RemoveAll(dataLinkNew); err != nil {
		return "", err
	}
	if err := w.link(name, dataLinkNew); err != nil {
		return "", err
	}
	return name, w.root.Rename(dataLinkNew, dataLink)
}

func (w writer) newDir() (string, error) {
	stamp := time.Now().UTC().Format("..2006_01_02_15_04_05.")
	for {
		name := fmt.Sprintf("%s%d", stamp, rand.Uint32())
		err := w.mkdir(name)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

func (w writer) mkdir(name string) error {
	if err := w.root.Mkdir(name, 0o700); err != nil {
		return err
	}
	mode := fs.FileMode(dirMode)
	if w.owner.GID != nil {
		mode |= fs.ModeSetgid
	}
	if err := w.give(name); err != nil {
		return err
	}
	return w.root.Chmod(name, mode)
}

func (w writer) fill(top string, p Payload) error {
	made := map[string]bool{".": true}
	for name, file := range p {
		for _, dir := range parents(name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.mkdir(path.Join(top, dir)); err != nil {
				return err
			}
		}
		if err := w.file(path.Join(top, name), file); err != nil {
			return err
		}
	}
	return nil
}

// parents are the directories above name, outermost first.
func parents(name string) []string {
	var dirs []string
	for i, c := range name {
		if c == '/' {
			dirs = append(dirs, name[:i])
		}
	}
	return dirs
}

func (w writer) file(name string, file File) error {
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	if uid, gid := w.owner.ids(file.UID); err == nil && (uid >= 0 || gid >= 0) {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(w.mode(file))
	}
	return errors.Join(err, f.Close())
}

func (w writer) mode(file File) fs.FileMode {
	if w.owner.GID != nil {
		return file.Mode | groupFile
	}
	return file.Mode
}

func (w writer) link(target, name string) error {
	if err := w.root.Symlink(target, name); err != nil {
		return err
	}
	return w.give(name)
}

// give gives a directory or link to the owner.
func (w writer) give(name string) error {
	uid, gid := w.owner.ids(nil)
	if uid < 0 && gid < 0 {
		return nil
	}
	return w.root.Lchown(name, uid, gid)
}

// show makes a link for each first component of the payload's paths.
func (w writer) show(p Payload) (changed bool, err error) {
	for name := range firsts(p) {
		target := path.Join(dataLink, name)
		info, err := w.root.Lstat(name)
		if err == nil && info.IsDir() {
			// The mount point of another volume: what is mounted there hides the file.
			continue
		}
		if err == nil {
			if old, err := w.root.Readlink(name); err == nil && old == target {
				continue
			}
			if err := w.root.Remove(name); err != nil {
				return changed, err
			}
		}
		if err := w.link(target, name); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// tidy removes links to files that no longer exist, and what older and interrupted writes have left.
func (w writer) tidy(current string, p Payload) error {
	wanted := firsts(p)
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		stale := strings.HasPrefix(name, "..") && name != dataLink && name != current
		if entry.Type() == fs.ModeSymlink && !strings.HasPrefix(name, "..") && !wanted[name] {
			target, err := w.root.Readlink(name)
			stale = err == nil && strings.HasPrefix(target, dataLink+"/")
		}
		if !stale {
			continue
		}
		if err := w.root.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

func firsts(p Payload) map[string]bool {
	names := map[string]bool{}
	for name := range p {
		first, _, _ := strings.Cut(name, "/")
		names[first] = true
	}
	return names
}
