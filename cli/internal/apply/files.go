package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/daemon/atomicfile"
)

// mark begins the files that are ours; header is their first line.
const (
	mark   = "# Written by kubelot apply."
	header = mark + " Change it with kubelot apply, and remove it with kubelot delete.\n"
)

// maxName is how long a file's name may be, with what is added to it while the file is unfinished.
const maxName = 255 - len("."+atomicfile.Suffix)

// Manifest is a file of the directory of static pods.
type Manifest struct {
	File string
	// Namespace and Name are those of the file's pod; Name is empty if there is none.
	Namespace, Name string
	// Own is true for what kubelot apply has written.
	Own  bool
	Data []byte
}

// fileOf is the name of the file of a pod. A namespace has no dot, so no two pods share a file.
func fileOf(namespace, name string) string { return "kubelot." + namespace + "." + name + ".yaml" }

// content is what is in the file of a document.
func content(d Document) []byte {
	data := append([]byte(header), d.Data...)
	if !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	return data
}

// Manifests reads a directory of static pods as podsync does: the first document of each file that isn't hidden. A
// directory that doesn't exist has none.
func Manifests(dir string) ([]Manifest, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the static pods: %w", err)
	}
	var all []Manifest
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if strings.HasPrefix(e.Name(), ".") || errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		var data []byte
		if err == nil {
			data, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, fmt.Errorf("read the static pods: %w", err)
		}
		all = append(all, manifestOf(e.Name(), data))
	}
	return all, nil
}

func manifestOf(file string, data []byte) Manifest {
	m := Manifest{File: file, Data: data, Own: bytes.HasPrefix(data, []byte(mark))}
	parts, err := split(data)
	if err != nil || len(parts) == 0 {
		return m
	}
	if h, err := headOf(parts[0]); err == nil && h.Kind == "Pod" && h.Metadata.Name != "" {
		m.Namespace, m.Name = h.Metadata.Namespace, h.Metadata.Name
	}
	return m
}

// Write puts a manifest into the directory, which is made if need be. The unfinished file is hidden from podsync.
func Write(dir, file string, data []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of static pods: %w", err)
	}
	hidden := filepath.Join(dir, "."+file)
	if err := atomicfile.WriteDurably(hidden, data, 0o600); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := os.Rename(hidden, filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("write the manifest: %w", errors.Join(err, os.Remove(hidden)))
	}
	return syncDir(dir)
}

// Remove takes a manifest out of the directory.
func Remove(dir, file string) error {
	if err := os.Remove(filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("remove the manifest: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
