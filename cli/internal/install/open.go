package install

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// open lets all users into kubelot's own directories, those of these paths too, and read what is in them: an earlier
// installation may have made them under a narrow umask, and daemons that keep their version go on running from there.
func (o Options) open(paths []string) error {
	err := filepath.WalkDir(o.at(o.lib()), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return allow(path)
	})
	if err != nil {
		return fmt.Errorf("let all users read what is installed: %w", err)
	}
	for _, path := range paths {
		dir := filepath.Dir(o.at(path))
		// Of the others kubelot has files in, but they are the system's.
		if !strings.HasPrefix(filepath.Base(dir), "kubelot") || !exists(dir) {
			continue
		}
		if err := allow(dir); err != nil {
			return fmt.Errorf("let all users read what is installed: %w", err)
		}
	}
	for dir := filepath.Dir(o.lib()); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(o.at(dir)); err == nil && info.Mode()&0o001 == 0 {
			fmt.Fprintf(o.Out, "not all users can enter %s, so most daemons can't start: run chmod o+x %[1]s\n", o.at(dir))
		}
	}
	return nil
}

// allow lets all users read a file or directory, and enter or execute it where its owner may.
func allow(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mode := info.Mode() | 0o444
	if mode&0o100 != 0 {
		mode |= 0o111
	}
	if mode == info.Mode() {
		return nil
	}
	return os.Chmod(path, mode)
}
