package upgrade

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/cli/internal/running"
)

const prefix = "kubelot-"

// link is a daemon's link, and what it points to now.
type link struct {
	name   string // of the daemon
	path   string
	target string // as it is in the link; empty if there is none
}

// links are those of the directory, of the daemons named or of all. With names, a daemon may lack one.
func links(dir string, names []string) ([]link, error) {
	if len(names) == 0 {
		found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			names = append(names, strings.TrimPrefix(filepath.Base(path), prefix))
		}
	}
	var all []link
	for _, name := range names {
		path := filepath.Join(dir, prefix+name)
		target, err := os.Readlink(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s is no link to the executable of a version: install kubelot with versioned directories "+
				"(make install), or name the directory of the links with --bin-dir", path)
		}
		all = append(all, link{name, path, target})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no links kubelot-<daemon>: name their directory with --bin-dir", dir)
	}
	return all, nil
}

// point makes the link point to the target, with no moment without it.
func point(path, target string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("move the link %s: %w", path, err)
	}
	if err := os.Symlink(target, fresh); err != nil {
		return fmt.Errorf("move the link %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("move the link %s: %w", path, err)
	}
	return nil
}

// remove removes a link; one that isn't there is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the link: %w", err)
	}
	return nil
}

// wayBack is the link's target before a process was moved: what the process runs, wherever the link leads to by now.
// It is empty if that executable is gone.
func wayBack(l link, p running.Process) string {
	if p.Replaced {
		return ""
	}
	if led, err := filepath.EvalSymlinks(l.path); err == nil && led == p.Executable {
		return l.target
	}
	// A multi-call executable has a link for each daemon next to it.
	next := filepath.Join(filepath.Dir(p.Executable), filepath.Base(l.path))
	if led, err := filepath.EvalSymlinks(next); err != nil || led != p.Executable {
		next = p.Executable
	}
	return targetFor(filepath.Dir(l.path), next)
}

// targetFor is how a link in dir points to the executable: as tools/install.sh does it where both are below one
// directory, so that a prefix may be moved as a whole.
func targetFor(dir, executable string) string {
	parent := filepath.Dir(dir)
	if rest, below := strings.CutPrefix(executable, parent+string(filepath.Separator)); below {
		return filepath.Join("..", rest)
	}
	return executable
}

// versionDir finds the directory of the new executables: a directory, an executable in it, or the name of a version
// next to that of the links.
func versionDir(binDir, to string) (string, error) {
	for _, path := range []string{filepath.Join(filepath.Dir(binDir), to), to} {
		info, err := os.Stat(path)
		if err != nil || path == to && !strings.Contains(to, string(filepath.Separator)) {
			continue
		}
		if !info.IsDir() {
			path = filepath.Dir(path)
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf("%s is neither a version next to %s nor the path of a directory with executables: install the "+
		"version first", to, binDir)
}
