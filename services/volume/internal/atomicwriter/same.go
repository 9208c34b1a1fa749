package atomicwriter

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
)

var errDiffers = errors.New("the volume has other content")

// same reports whether the directory holds exactly the payload.
func (w writer) same(dir string, p Payload) bool {
	dirs := map[string]bool{dir: true}
	for name := range p {
		for _, parent := range parents(name) {
			dirs[dir+"/"+parent] = true
		}
	}
	found := 0
	err := fs.WalkDir(w.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && dirs[name]:
			return nil
		case entry.IsDir():
			return errDiffers
		}
		file, ok := p[name[len(dir)+1:]]
		if !ok || !w.sameFile(name, entry, file) {
			return errDiffers
		}
		found++
		return nil
	})
	return err == nil && found == len(p)
}

func (w writer) sameFile(name string, entry fs.DirEntry, file File) bool {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != w.mode(file) ||
		info.Size() != int64(len(file.Data)) {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	uid, gid := w.owner.ids(file.UID)
	if !ok || uid >= 0 && int(stat.Uid) != uid || gid >= 0 && int(stat.Gid) != gid {
		return false
	}
	data, err := readAtMost(w.root, name, int64(len(file.Data)))
	return err == nil && bytes.Equal(data, file.Data)
}
