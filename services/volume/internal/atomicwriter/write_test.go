package atomicwriter

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(pairs ...string) Payload {
	p := Payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = File{Data: []byte(pairs[i+1]), Mode: 0o644}
	}
	return p
}

// visible is what a container sees: the files by path, "dir/" for directories, names that begin with ".." left out.
func visible(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		must(t, err)
		for _, e := range entries {
			name := filepath.Join(rel, e.Name())
			if strings.HasPrefix(name, "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				list = append(list, name+" (dangling)")
				continue
			}
			if info.IsDir() {
				walk(name)
				if entries, _ := os.ReadDir(filepath.Join(dir, name)); len(entries) == 0 {
					list = append(list, name+"/")
				}
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			list = append(list, name+"="+string(data))
		}
	}
	walk("")
	sort.Strings(list)
	return strings.Join(list, " ")
}

func TestWrite(t *testing.T) {
	for _, steps := range [][]struct {
		payload Payload
		want    string
		changed bool
	}{
		{
			{files("a", "1", "b", "2"), "a=1 b=2", true},
			{files("a", "1", "b", "2"), "a=1 b=2", false},
			{files("a", "1"), "a=1", true},
			{files(), "", true},
		},
		{
			{files("d/e/f", "1", "d/g", "2"), "d/e/f=1 d/g=2", true},
			{files("d/g", "2"), "d/g=2", true},
			{files("d", "file now"), "d=file now", true},
		},
		{
			{files(), "", true},
			{files(), "", false},
			{files("./x//y", "1"), "x/y=1", true},
			{files("x/y", "1"), "x/y=1", false},
		},
	} {
		dir := t.TempDir()
		for i, s := range steps {
			changed, err := Write(dir, s.payload, Owner{})
			must(t, err)
			if got := visible(t, dir); got != s.want || changed != s.changed {
				t.Errorf("step %d: changed %v, content %q; want %v, %q", i, changed, got, s.changed, s.want)
			}
			if hidden, _ := filepath.Glob(filepath.Join(dir, "..*")); len(hidden) != 2 {
				t.Errorf("step %d: %v, want ..data and one directory", i, hidden)
			}
		}
	}
}

func TestWriteSetsModesAndOwners(t *testing.T) {
	uid, gid := int64(1234), int64(4711)
	dir := t.TempDir()
	p := Payload{"token": {Data: []byte("x"), Mode: 0o600, UID: &uid}, "d/file": {Mode: 0o200}}
	_, err := Write(dir, p, Owner{GID: &gid})
	must(t, err)
	for name, want := range map[string]fs.FileMode{
		"token": 0o640, "d/file": 0o640,
		"d": fs.ModeDir | fs.ModeSetgid | 0o755,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want || stat.Gid != 4711 {
			t.Errorf("%s: mode %v, group %d; want %v, 4711", name, info.Mode(), stat.Gid, want)
		}
		if name == "token" && stat.Uid != 1234 {
			t.Errorf("token belongs to %d", stat.Uid)
		}
	}
	if changed, err := Write(dir, p, Owner{GID: &gid}); changed || err != nil {
		t.Errorf("the same files were written again: %v, %v", changed, err)
	}
	p["token"] = File{Data: []byte("x"), Mode: 0o400, UID: &uid}
	if changed, err := Write(dir, p, Owner{GID: &gid}); !changed || err != nil {
		t.Errorf("another mode was not written: %v, %v", changed, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, name := range []string{
		"", ".", "./", "...odd", "/etc/passwd", "..", "../x", "a/../b", "a/..", "..data/x", "./..data", "./../x", "a\x00b",
		strings.Repeat("n", maxName+1), strings.Repeat("n/", maxPath),
	} {
		dir := t.TempDir()
		if _, err := Write(dir, files(name, "x"), Owner{}); err == nil {
			t.Errorf("path %q was accepted", name)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("path %q: something was written", name)
		}
	}
	if _, err := Write(t.TempDir(), files("a", "1", "a/b", "2"), Owner{}); err == nil {
		t.Error("a file that is also a directory was accepted")
	}
}

func TestWriteLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "mountpoint"), 0o755))
	must(t, os.Symlink("/elsewhere", filepath.Join(dir, "link")))
	_, err := Write(dir, files("a", "1", "mountpoint", "hidden"), Owner{})
	must(t, err)
	if info, err := os.Lstat(filepath.Join(dir, "mountpoint")); err != nil || !info.IsDir() {
		t.Errorf("the mount point was replaced: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "link")); err != nil {
		t.Errorf("a link of somebody else was removed: %v", err)
	}
}

// Whatever an interrupted write has left, the next one puts right.
func TestWriteAfterInterruption(t *testing.T) {
	for name, damage := range map[string]func(dir string){
		"new directory":      func(dir string) { _ = os.MkdirAll(filepath.Join(dir, "..2026_01_02_15_04_05.1", "d"), 0o755) },
		"link to be renamed": func(dir string) { _ = os.Symlink("..nowhere", filepath.Join(dir, dataLinkNew)) },
		"visible link lost":  func(dir string) { _ = os.Remove(filepath.Join(dir, "a")) },
		"stale visible link": func(dir string) { _ = os.Symlink("..data/old", filepath.Join(dir, "old")) },
		"data link lost":     func(dir string) { _ = os.Remove(filepath.Join(dir, dataLink)) },
		"data link dangles": func(dir string) {
			_ = os.Remove(filepath.Join(dir, dataLink))
			_ = os.Symlink("..gone", filepath.Join(dir, dataLink))
		},
		"data link leads out": func(dir string) {
			_ = os.Remove(filepath.Join(dir, dataLink))
			_ = os.Symlink("../..", filepath.Join(dir, dataLink))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Write(dir, files("a", "1", "d/b", "2"), Owner{})
			must(t, err)
			damage(dir)
			_, err = Write(dir, files("a", "1", "d/b", "2"), Owner{})
			must(t, err)
			if got := visible(t, dir); got != "a=1 d/b=2" {
				t.Errorf("content %q", got)
			}
			if hidden, _ := filepath.Glob(filepath.Join(dir, "..*")); len(hidden) != 2 {
				t.Errorf("%v, want ..data and one directory", hidden)
			}
		})
	}
}

// Readers that resolve ..data once see files of one write only.
func TestWriteIsAtomic(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(dir, files("a", "0", "b", "0"), Owner{})
	must(t, err)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := os.Lstat(filepath.Join(dir, dataLink)); err != nil {
				t.Errorf("..data is missing for a moment: %v", err)
				return
			}
			root, err := os.OpenRoot(filepath.Join(dir, dataLink))
			if err != nil {
				continue // what the link named was replaced and removed meanwhile
			}
			a, errA := root.ReadFile("a")
			b, errB := root.ReadFile("b")
			_ = root.Close()
			if errA == nil && errB == nil && string(a) != string(b) {
				t.Errorf("mixed content: %s and %s", a, b)
				return
			}
		}
	})
	for i := range 300 {
		_, err := Write(dir, files("a", fmt.Sprint(i), "b", fmt.Sprint(i)), Owner{})
		must(t, err)
	}
	close(stop)
	readers.Wait()
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(dir, files("d/a", "1"), Owner{})
	must(t, err)
	if data, err := Read(dir, "d/a"); err != nil || string(data) != "1" {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := Read(dir, "../x"); err == nil {
		t.Error("read outside of the volume")
	}
}

// Whatever the path, nothing appears outside of the volume.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{
		"a", "a/b", "../x", "..data", "a/../../x", "./..data/x", "/abs", "a//b",
		".", "...", "a\x00",
	} {
		f.Add(seed, "other")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "volume")
		must(t, os.Mkdir(dir, 0o755))
		p := files(one, "1", two, "2")
		_, err := Write(dir, p, Owner{})
		if entries, readErr := os.ReadDir(parent); readErr != nil || len(entries) != 1 {
			t.Fatalf("paths %q and %q: %v next to the volume", one, two, entries)
		}
		if err != nil {
			return
		}
		for name, file := range p {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != string(file.Data) {
				// Two paths that are the same once cleaned share one file.
				if filepath.Clean(one) != filepath.Clean(two) {
					t.Fatalf("path %q: %q, %v", name, data, err)
				}
			}
		}
	})
}

func TestReadOfAFileThatMemoryCanNotHold(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(dir, files("token", "t"), Owner{})
	must(t, err)
	if err := os.Truncate(filepath.Join(dir, "..data", "token"), 1<<40); err != nil {
		t.Skip("the file system has no sparse files of this size:", err)
	}
	if data, err := Read(dir, "token"); err == nil {
		t.Errorf("read %d bytes", len(data))
	}
}
