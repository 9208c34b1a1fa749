package takeover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"kubelot.dev/daemon/config"
)

// reader is one of the users that the units run daemons as. All of them read the configuration by the same group.
const reader = "kubelot-bus"

// group is the group of all those users.
const group = "kubelot"

// Readable is an error that names a file of the configuration that the daemons' users can't read. Where the units'
// users aren't there, the daemons run as root.
func Readable(ctx context.Context, file, dir string) error {
	u, err := user.Lookup(reader)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown || os.Geteuid() != 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the daemons' users: %w", err)
	}
	as, err := credential(u)
	if err != nil {
		return fmt.Errorf("look for the daemons' users: %w", err)
	}
	return readable(ctx, as, file, dir)
}

// MakeReadable is Readable where the kubelet's own unit runs the daemons, as kubeadm and others start it: there a file
// that only root can read is given to the daemons' group, which may read it then. A file that has rights for another
// group stays as it is.
func MakeReadable(ctx context.Context, file, dir string) error {
	found, err := user.LookupGroup(group)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown || os.Geteuid() != 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the daemons' group: %w", err)
	}
	gid, err := strconv.Atoi(found.Gid)
	if err != nil {
		return fmt.Errorf("look for the daemons' group: %w", err)
	}
	files, err := configuration(file, dir)
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := grant(path, gid); err != nil {
			return fmt.Errorf("let the daemons read the configuration: %w", err)
		}
	}
	return Readable(ctx, file, dir)
}

// grant lets a group read a file that so far only its owner can read. A file that isn't there is the caller's to name.
func grant(path string, gid int) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o077 != 0 {
		return nil
	}
	if err := f.Chown(-1, gid); err != nil {
		return err
	}
	return f.Chmod(info.Mode().Perm() | 0o040)
}

func credential(u *user.User) (*syscall.Credential, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, uint32(id))
	}
	return &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}, nil
}

// configuration are the files of the configuration.
func configuration(file, dir string) ([]string, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		dropIns, err := filepath.Glob(filepath.Join(dir, "*.conf"))
		if err != nil {
			return nil, fmt.Errorf("look at the configuration: %w", err)
		}
		files = append(files, dropIns...)
	}
	return files, nil
}

func readable(ctx context.Context, as *syscall.Credential, file, dir string) error {
	files, err := configuration(file, dir)
	if err != nil {
		return err
	}
	for _, path := range files {
		// The kernel knows best: modes, groups, access control lists, and the directories above.
		test := exec.CommandContext(ctx, "test", "-r", path)
		test.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		err := test.Run()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == 1 {
			return fmt.Errorf("the daemons' users can't read %s: %s", path, config.HowToRead(path))
		}
		if err != nil {
			return fmt.Errorf("look whether the daemons' users can read %s: %w", path, err)
		}
	}
	return nil
}
