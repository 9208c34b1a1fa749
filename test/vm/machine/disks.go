package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// writeSeed writes an initrd: the image's, and then the files, in the directory that its program copies to the disk.
func writeSeed(ctx context.Context, path, initrd string, files []File) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), "seed")
	if err != nil {
		return fmt.Errorf("write the machine's files: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, file := range files {
		if err := file.write(filepath.Join(dir, "seed", file.Path)); err != nil {
			return fmt.Errorf("write the machine's files: %w", err)
		}
	}
	pack := exec.CommandContext(ctx, "sh", "-c", `find seed | cpio --quiet -o -H newc`)
	pack.Dir = dir
	seed, err := pack.Output()
	if err != nil {
		return fmt.Errorf("pack the machine's files: %w", err)
	}
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the machine's files: %w", err)
	}
	defer out.Close()
	in, err := os.Open(initrd)
	if err != nil {
		return fmt.Errorf("write the machine's files: %w", err)
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("write the machine's files: %w", err)
	}
	_, err = out.Write(seed)
	return errors.Join(err, out.Close())
}

func (f File) write(path string) error {
	// sshd reads no keys below a directory that others may write to.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, path)
	}
	mode := f.Mode
	if mode == 0 {
		mode = 0o644
	}
	return os.WriteFile(path, []byte(f.Text), mode)
}

// makeDisk makes a filesystem with the contents of a directory.
func makeDisk(ctx context.Context, path, dir string) error {
	out, err := exec.CommandContext(ctx, "du", "-sm", dir).Output()
	if err != nil {
		return fmt.Errorf("measure %s: %w", dir, err)
	}
	size, err := strconv.Atoi(strings.Fields(string(out))[0])
	if err != nil {
		return fmt.Errorf("measure %s: %w", dir, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	// The filesystem's own tables need some.
	return run(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", dir, path,
		strconv.Itoa(size+size/8+16)+"M")
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
