package takeover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubelot.dev/cli/internal/handover"
	"kubelot.dev/cli/internal/running"
	"kubelot.dev/daemon/atomicfile"
)

const (
	// flagsDir has drop-ins of all daemons' units. 20-kubelet.conf, of the package kubelot-kubelet, beats this one.
	flagsDir  = "/etc/systemd/system/kubelot-.service.d"
	dropInOf  = "15-takeover.conf"
	flagsName = "takeover.env"

	// FlagsFile is where the units have the flags from that the kubelet had.
	FlagsFile = flagsDir + "/" + flagsName
)

// TakeFlags has all units run with these flags, in place of those in /etc/default/kubelot, and with the proxies that
// the kubelet's environment names. If there says that all of it is in that file, they have it from there. It reports
// whether they have it from FlagsFile.
func TakeFlags(ctx context.Context, there bool, args, environ []string) (kept bool, err error) {
	return takeFlags(ctx, flagsDir, there, args, environ)
}

func takeFlags(ctx context.Context, dir string, there bool, args, environ []string) (kept bool, err error) {
	if there {
		// Those of an earlier takeover come before that file. They are left where the kubelet was started again by its
		// own name, and not by a handback.
		return false, undo(ctx, dir)
	}
	if err := keepFlags(dir, args, environ); err != nil {
		return false, errors.Join(err, dropFlags(dir))
	}
	if err := running.Systemctl(ctx, "daemon-reload"); err != nil {
		return false, errors.Join(err, dropFlags(dir))
	}
	return true, nil
}

// DropFlags undoes TakeFlags.
func DropFlags(ctx context.Context) error { return undo(ctx, flagsDir) }

func undo(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, dropInOf)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(dropFlags(dir), running.Systemctl(ctx, "daemon-reload"))
}

// DropFlagsBelow removes the files of TakeFlags below a directory that has a machine's files.
func DropFlagsBelow(dest string) error { return dropFlags(filepath.Join(dest, flagsDir)) }

func keepFlags(dir string, args, environ []string) error {
	env := filepath.Join(dir, flagsName)
	const comment = "The flags that the kubelet had when kubelot took the node over. To change one, change it here, " +
		"and:\n# systemctl restart kubelot.target"
	if err := handover.Write(env, comment, args, environ); err != nil {
		return err
	}
	text := "# Written by kubelot takeover. kubelot handback removes it.\n[Service]\nEnvironmentFile=" + env + "\n"
	if err := atomicfile.Write(filepath.Join(dir, dropInOf), []byte(text), 0o644); err != nil {
		return fmt.Errorf("keep the kubelet's flags: %w", err)
	}
	return nil
}

func dropFlags(dir string) error {
	for _, name := range []string{dropInOf, flagsName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the kubelet's flags: %w", err)
		}
	}
	// Others may have drop-ins there.
	_ = os.Remove(dir)
	return nil
}
