package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// Orphans are the UIDs found on disk or among the cgroups that are neither wanted nor observed, sorted.
func Orphans(found []types.UID, wanted, observed map[types.UID]bool) []types.UID {
	var orphans []types.UID
	for _, uid := range found {
		if !wanted[uid] && !observed[uid] {
			orphans = append(orphans, uid)
		}
	}
	slices.Sort(orphans)
	return slices.Compact(orphans)
}

// PodDirs are the UIDs that have a directory under <rootDir>/pods.
func PodDirs(rootDir string) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(rootDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// RemovePodDir removes <rootDir>/pods/<uid>. It refuses while something is mounted below and names the mount.
// It is no error if there is none.
func RemovePodDir(rootDir string, uid types.UID) error {
	if !element(string(uid)) {
		return fmt.Errorf("remove the directory of pod %q: the UID is not the name of a directory", uid)
	}
	if err := removeTree(filepath.Join(rootDir, "pods"), string(uid)); err != nil {
		return fmt.Errorf("remove the directory of pod %s: %w", uid, err)
	}
	return nil
}

// LogDir is <podLogsDir>/<namespace>_<name>_<uid>.
func LogDir(podLogsDir, namespace, name string, uid types.UID) string {
	return filepath.Join(podLogsDir, logDir(namespace, name, uid))
}

func logDir(namespace, name string, uid types.UID) string {
	return labels.LogDir(topic.Ref{Namespace: namespace, Name: name, UID: string(uid)})
}

// RemoveLogDir removes the pod's log directory. It is no error if there is none.
func RemoveLogDir(podLogsDir, namespace, name string, uid types.UID) error {
	dir := logDir(namespace, name, uid)
	if !element(dir) {
		return fmt.Errorf("remove the logs of pod %s/%s: %q is not the name of a directory", namespace, name, dir)
	}
	if err := removeTree(podLogsDir, dir); err != nil {
		return fmt.Errorf("remove the logs of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// RemoveLinks removes the links below dir into a pod's log directory, also those of containers that the runtime has forgotten.
func RemoveLinks(dir, logDir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the links to container logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, logDir+"/") {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a link to a log in %s: %w", logDir, err))
		}
	}
	return errors.Join(errs...)
}

// maxName is the longest name that a file can have.
const maxName = 255

// LogLink is the path of the link that log collectors follow: <dir>/<pod>_<namespace>_<container>-<id>.log. The
// name is cut where it would be too long, as the kubelet cuts it.
func LogLink(dir, pod, namespace, container, id string) string {
	const suffix = ".log"
	base := fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id)
	if len(base) > maxName-len(suffix) {
		base = base[:maxName-len(suffix)]
	}
	return filepath.Join(dir, base+suffix)
}

// element tells whether s is a single path element.
func element(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// removeTree removes parent/name and all below it, if nothing of it is a mount point.
func removeTree(parent, name string) error {
	fd, err := unix.Open(parent, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	here := filepath.Join(parent, name)
	// Look at all of it before the first removal: half a pod's directory is of no use to anybody.
	if err := visit(fd, name, here, false); err != nil {
		return err
	}
	return visit(fd, name, here, true)
}

// visit checks that neither the entry name of the directory dir nor anything below it is a mount point, and removes it
// all if asked to. What vanishes meanwhile is no error.
func visit(dir int, name, path string, remove bool) error {
	isDir, err := inspect(dir, name, path)
	if err == nil && isDir {
		err = visitBelow(dir, name, path, remove)
	}
	if err == nil && remove {
		flags := 0
		if isDir {
			flags = unix.AT_REMOVEDIR
		}
		if err = unix.Unlinkat(dir, name, flags); err != nil {
			err = &fs.PathError{Op: "remove", Path: path, Err: err}
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// inspect tells whether an entry is a directory, and refuses mount points.
func inspect(dir int, name, path string) (isDir bool, err error) {
	var st unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if err := unix.Statx(dir, name, flags, unix.STATX_TYPE, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, fmt.Errorf("the kernel can't tell whether %s is a mount point: Linux 5.8 or later is needed", path)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return false, fmt.Errorf("%s is still mounted: it is removed once it is unmounted", path)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

func visitBelow(dir int, name, path string, remove bool) error {
	fd, err := unix.Openat(dir, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := visit(fd, n, filepath.Join(path, n), remove); err != nil {
			return err
		}
	}
	return nil
}
