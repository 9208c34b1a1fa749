package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/deploy"
)

// copyVersion puts the executables into the directory of their version, which is replaced as a whole: a daemon that
// runs from it keeps the old one.
func (o Options) copyVersion() error {
	into := o.at(filepath.Join(o.lib(), o.Version))
	if same(o.From, into) {
		return nil
	}
	entries, err := os.ReadDir(o.From)
	if err != nil {
		return fmt.Errorf("find the executables: %w", err)
	}
	fresh := into + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o755)); err != nil {
		return fmt.Errorf("install version %s: %w", o.Version, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name != "kubelot" && !strings.HasPrefix(name, daemonPrefix) {
			continue
		}
		if err := transfer(filepath.Join(o.From, name), filepath.Join(fresh, name)); err != nil {
			// Half a version would take space, which may be what is missing.
			return fmt.Errorf("install version %s: %w", o.Version, errors.Join(err, os.RemoveAll(fresh)))
		}
	}
	if err := errors.Join(os.RemoveAll(into), os.Rename(fresh, into)); err != nil {
		return fmt.Errorf("install version %s: %w", o.Version, err)
	}
	fmt.Fprintf(o.Out, "version %s is in %s\n", o.Version, into)
	return nil
}

func same(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	two, err := os.Stat(b)
	return err == nil && os.SameFile(one, two)
}

// transfer copies an executable, or a link to its neighbour.
func transfer(from, to string) error {
	if target, err := os.Readlink(from); err == nil && !strings.Contains(target, "/") {
		return os.Symlink(target, to)
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	// Whatever the umask is.
	return errors.Join(err, copied.Chmod(0o755), copied.Sync(), copied.Close())
}

// put writes a file of kubelot's, or a link.
func (o Options) put(file deploy.File) error {
	path := o.at(file.Path)
	if file.Link != "" {
		return o.link(file.Path, file.Link)
	}
	if file.Config {
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := atomicfile.Write(path, file.Content, 0o644); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

// link makes or moves a link; there is no moment without it.
func (o Options) link(path, to string) error {
	path = o.at(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install: %w", err)
	}
	if err := errors.Join(os.Symlink(to, fresh), os.Rename(fresh, path)); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

// remove removes a file or a link, and the directory of drop-ins or links that is empty then.
func (o Options) remove(path string) error {
	path = o.at(path)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("uninstall: %w", err)
	}
	dir := filepath.Dir(path)
	if ext := filepath.Ext(dir); ext == ".d" || ext == ".wants" {
		// It may have what others put there.
		_ = os.Remove(dir)
	}
	return nil
}

// manifest is the list of what was installed outside of the directory of the versions, or in its bin.
func (o Options) manifest() string { return filepath.Join(o.lib(), "installed.txt") }

const manifestHead = "# What kubelot install has put on this machine; kubelot uninstall removes it."

func (o Options) readManifest() ([]string, error) {
	text, err := os.ReadFile(o.at(o.manifest()))
	if err != nil {
		return nil, fmt.Errorf("read what is installed: %w", err)
	}
	paths := []string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if filepath.Clean(line) != line || !filepath.IsAbs(line) {
			return nil, fmt.Errorf("%s: %q isn't the absolute path of a file: mend the list, nothing was changed",
				o.at(o.manifest()), line)
		}
		paths = append(paths, line)
	}
	return paths, nil
}

// announce adds to the list what is going to be put on the machine, so that it is known to be kubelot's even if the
// installation breaks off.
func (o Options) announce(before []string, links []link, files []deploy.File) error {
	paths := slices.Clone(before)
	for _, l := range links {
		paths = append(paths, l.path)
	}
	for _, file := range files {
		if !file.Config {
			paths = append(paths, file.Path)
		}
	}
	slices.Sort(paths)
	return o.writeManifest(slices.Compact(paths))
}

func (o Options) writeManifest(paths []string) error {
	var text bytes.Buffer
	fmt.Fprintln(&text, manifestHead)
	for _, path := range paths {
		fmt.Fprintln(&text, path)
	}
	if err := atomicfile.Write(o.at(o.manifest()), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write down what is installed: %w", err)
	}
	return nil
}
