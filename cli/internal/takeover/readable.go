package takeover

import (
	"context"
	"errors"
	"fmt"
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

func readable(ctx context.Context, as *syscall.Credential, file, dir string) error {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		dropIns, err := filepath.Glob(filepath.Join(dir, "*.conf"))
		if err != nil {
			return fmt.Errorf("look at the configuration: %w", err)
		}
		files = append(files, dropIns...)
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
