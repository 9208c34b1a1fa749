package atomicwriter

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// The limits of Linux for a path and a name.
const (
	maxPath = 4096
	maxName = 255
)

// File is one file to write.
type File struct {
	Data []byte
	// Mode are the permission bits.
	Mode fs.FileMode
	// UID is the file's owner; nil means root.
	UID *int64
}

// Owner is whom the files and directories of a volume belong to.
type Owner struct {
	// GID is a group that can read them; nil means that they belong to root's.
	GID *int64
	// First is the ID on the host of a pod's root, if all IDs are to be the pod's on the host; 0 means that they stay what
	// they are.
	First int64
}

// ids are what chown takes for a file of that owner; -1 leaves what is there.
func (o Owner) ids(uid *int64) (user, group int) {
	one := func(id *int64) int {
		switch {
		case id != nil:
			return int(o.First + *id)
		case o.First > 0:
			return int(o.First)
		}
		return -1
	}
	return one(uid), one(o.GID)
}

// Payload are the files of a volume by their path in it.
type Payload map[string]File

// Check refuses a payload with a path that leaves the volume or uses a reserved name, as Write does.
func Check(p Payload) error {
	_, err := clean(p)
	return err
}

// clean is the payload with normal paths.
func clean(p Payload) (Payload, error) {
	out := make(Payload, len(p))
	for name, file := range p {
		if err := checkPath(name); err != nil {
			return nil, fmt.Errorf("file path %q: %w", name, err)
		}
		file.Mode = file.Mode.Perm()
		out[path.Clean(name)] = file
	}
	for name := range out {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := out[dir]; ok {
				return nil, fmt.Errorf("file path %q: %q is a file in the same volume", name, dir)
			}
		}
	}
	return out, nil
}

func checkPath(name string) error {
	switch {
	case name == "" || path.Clean(name) == ".":
		return errors.New("must not be empty")
	case len(name) > maxPath:
		return fmt.Errorf("is longer than %d bytes", maxPath)
	case path.IsAbs(name):
		return errors.New("must be relative")
	case strings.ContainsRune(name, 0):
		return errors.New("must not contain a NUL byte")
	case strings.HasPrefix(name, ".."):
		return errors.New(`must not begin with ".."`)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return errors.New(`must not contain ".."`)
		case len(part) > maxName:
			return fmt.Errorf("has a component longer than %d bytes", maxName)
		}
	}
	// Cleaning may bring a reserved name to the front, such as in "./..data".
	if strings.HasPrefix(path.Clean(name), "..") {
		return errors.New(`must not begin with ".."`)
	}
	return nil
}
