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
// or directory of the configuration that only root can read is given to the daemons' group, which may read it then.
// What has rights for another group stays as it is.
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

// grant lets a group read what so far only its owner can read, and enter it if it is a directory. A file that isn't
// there is the caller's to name.
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
	rights := fs.FileMode(0o040)
	if info.IsDir() {
		rights = 0o050
	}
	if !info.Mode().IsRegular() && !info.IsDir() || info.Mode()&0o077 != 0 {
		return nil
	}
	if err := f.Chown(-1, gid); err != nil {
		return err
	}
	return f.Chmod(info.Mode().Perm() | rights)
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

// configuration are the files of the configuration, as package config finds them, and the directories of drop-ins.
func configuration(file, dir string) ([]string, error) {
	var paths []string
	if file != "" {
		paths = append(paths, file)
	}
	if dir == "" {
		return paths, nil
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || filepath.Ext(path) == ".conf") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the configuration: %w", err)
	}
	return paths, nil
}

func readable(ctx context.Context, as *syscall.Credential, file, dir string) error {
	paths, err := configuration(file, dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		may, err := passes(ctx, as, "-r", path)
		if err != nil {
			return err
		}
		if may {
			continue
		}
		closed, err := closedAbove(ctx, as, path)
		if err != nil {
			return err
		}
		mend := config.HowToRead(path)
		if info, err := os.Stat(path); closed == "" && err == nil && info.IsDir() {
			closed = path
		}
		if closed != "" {
			mend = fmt.Sprintf("they must get into %[1]s: chgrp kubelot %[1]s && chmod g+rx %[1]s", closed)
		}
		return fmt.Errorf("the daemons' users can't read %s: %s", path, mend)
	}
	return nil
}

// closedAbove is the outermost directory above the path that the users can't enter; empty if there is none.
func closedAbove(ctx context.Context, as *syscall.Credential, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("look at the configuration: %w", err)
	}
	closed := ""
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		may, err := passes(ctx, as, "-x", dir)
		if err != nil {
			return "", err
		}
		if !may {
			closed = dir
		}
		if dir == filepath.Dir(dir) {
			return closed, nil
		}
	}
}

// passes reports whether the users pass the test of that name. The kernel knows best: modes, groups, access control
// lists, and the directories above.
func passes(ctx context.Context, as *syscall.Credential, name, path string) (bool, error) {
	test := exec.CommandContext(ctx, "test", name, path)
	test.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	err := test.Run()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether the daemons' users can read %s: %w", path, err)
	}
	return true, nil
}
