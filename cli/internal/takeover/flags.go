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

// KeepFlags has all units run with these flags, in place of those in /etc/default/kubelot, and with the proxies that
// the kubelet's environment names.
func KeepFlags(ctx context.Context, args, environ []string) error {
	if err := keepFlags(flagsDir, args, environ); err != nil {
		return errors.Join(err, dropFlags(flagsDir))
	}
	if err := running.Systemctl(ctx, "daemon-reload"); err != nil {
		return errors.Join(err, dropFlags(flagsDir))
	}
	return nil
}

// DropFlags undoes KeepFlags.
func DropFlags(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(flagsDir, dropInOf)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(dropFlags(flagsDir), running.Systemctl(ctx, "daemon-reload"))
}

// DropFlagsBelow removes the files of KeepFlags below a directory that has a machine's files.
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
