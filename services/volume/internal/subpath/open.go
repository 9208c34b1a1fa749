package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// resolve keeps the kernel below the volume's root while it follows the volume's own links.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// retries bounds how often a resolution is repeated that lost a race against renames in the volume.
const retries = 64

// The reasons why a subPath can't be used, without a word about the host's files.
var (
	errEscapes = errors.New("it leads out of the volume")
	errInvalid = errors.New(`it must be relative and must not contain ".."`)
)

// check refuses paths that the API refuses too.
func check(sub string) error {
	if path.IsAbs(sub) || strings.ContainsRune(sub, 0) {
		return errInvalid
	}
	for part := range strings.SplitSeq(sub, "/") {
		if part == ".." {
			return errInvalid
		}
	}
	return nil
}

// openBeneath opens (O_PATH) what sub names in the volume behind root.
func openBeneath(root int, sub string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	for range retries {
		fd, err := unix.Openat2(root, sub, &how)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return -1, errEscapes
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf(
				"there is no openat2: kubelot needs Linux 5.6 or later, and a unit without RestrictSUIDSGID=: %w",
				err,
			)
		}
		return fd, err
	}
	return -1, errors.New("the volume's directories are being renamed all the time")
}

// openAbsolute opens what a subPath with links that name whole paths of the host leads to. Where that is is only a
// guess, for links may change: what is opened is looked up below the volume's root again.
func openAbsolute(root int, m Mount) (int, error) {
	volume, err := filepath.EvalSymlinks(m.VolumePath)
	if err != nil {
		return -1, errEscapes
	}
	resolved, err := filepath.EvalSymlinks(filepath.Join(volume, m.SubPath))
	if err != nil {
		return -1, errEscapes
	}
	rel, err := filepath.Rel(volume, resolved)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, errEscapes
	}
	return openBeneath(root, rel)
}

// openOrCreate opens what sub names and creates the directories that are missing, with the mode of the
// volume's root; a setgid bit on it hands its group down. They inherit its owner too if they are to.
func openOrCreate(root int, sub string, inherit bool) (int, error) {
	fd, err := openBeneath(root, sub)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(root, &stat); err != nil {
		return -1, err
	}
	like := traits{uid: -1, gid: -1, mode: stat.Mode & 0o7777}
	if inherit {
		like.uid, like.gid = int(stat.Uid), int(stat.Gid)
	}
	parent := ""
	for part := range strings.SplitSeq(sub, "/") {
		if err := ensureChild(root, parent, part, like); err != nil {
			return -1, err
		}
		parent = path.Join(parent, part)
	}
	return openBeneath(root, sub)
}

// traits are those of new directories; a uid of -1 leaves owner and group as they are.
type traits struct {
	uid, gid int
	mode     uint32
}

// ensureChild makes the directory name in parent, a path in the volume, unless there is something of that name.
func ensureChild(root int, parent, name string, like traits) error {
	if parent == "" {
		parent = "."
	}
	at, err := openBeneath(root, parent)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	err = unix.Mkdirat(at, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	// The new directory may have been replaced: change the mode of a directory that is opened
	// without following links, never of something it points to.
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errEscapes
	}
	defer func() { _ = unix.Close(fd) }()
	if like.uid >= 0 {
		if err := unix.Fchown(fd, like.uid, like.gid); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, like.mode)
}

// reason is err in words that tell nothing about the host.
func reason(err error) error {
	for _, known := range []error{errEscapes, errInvalid} {
		if errors.Is(err, known) {
			return known
		}
	}
	for code, text := range map[unix.Errno]string{
		unix.ENOENT: "it does not exist and can't be created", unix.ENOTDIR: "a part of it is not a directory",
		unix.EROFS:        "it does not exist, and the volume's filesystem is read-only",
		unix.ENOSPC:       "the volume's filesystem is full",
		unix.ENAMETOOLONG: "it is too long", unix.EACCES: "permission denied", unix.EPERM: "permission denied",
	} {
		if errors.Is(err, code) {
			return errors.New(text)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the volume is not there")
	}
	return err
}
