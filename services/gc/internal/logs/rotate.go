package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// reopener is the part of the CRI that rotation needs.
type reopener interface {
	ReopenContainerLog(ctx context.Context, id string) error
}

// Rotator rotates logs.
type Rotator struct {
	Runtime reopener
	Policy  Policy
}

// Look decides about the log of a running container at path.
func (r Rotator) Look(path string, now time.Time) (Steps, int64, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return Steps{}, 0, fmt.Errorf("look at the log %s: %w", path, err)
	}
	size, files := int64(-1), make([]string, 0, len(entries))
	for _, e := range entries {
		files = append(files, e.Name())
	}
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		return Steps{}, 0, fmt.Errorf("look at the log %s: it is not a regular file, so it isn't rotated", path)
	case err == nil:
		size = info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return Steps{}, 0, fmt.Errorf("look at the log %s: %w", path, err)
	}
	return plan(r.Policy, filepath.Base(path), size, files, now), size, nil
}

// Do takes the steps for the log of the container. All are tried: a log that can't be compressed is rotated all the
// same.
func (r Rotator) Do(ctx context.Context, id, path string, s Steps) error {
	dir := filepath.Dir(path)
	var errs []error
	for _, name := range s.Remove {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove an old log: %w", err))
		}
	}
	// Rotation comes first: compression takes its time, and the log grows meanwhile.
	switch {
	case s.Rotate != "":
		errs = append(errs, r.rotate(ctx, id, path, filepath.Join(dir, s.Rotate)))
	case s.Reopen:
		if err := r.Runtime.ReopenContainerLog(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("log %s is missing and can't be created again: %w", path, err))
		}
	}
	for _, name := range s.Compress {
		if ctx.Err() != nil {
			break
		}
		if err := compress(ctx, filepath.Join(dir, name)); err != nil {
			errs = append(errs, fmt.Errorf("compress a rotated log, which stays as it is: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (r Rotator) rotate(ctx context.Context, id, path, rotated string) error {
	if err := os.Rename(path, rotated); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	err := r.Runtime.ReopenContainerLog(ctx, id)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("rotate log %s: %w", path, err)
	// The runtime may have done it and only its answer is missing: then there is a new log, which must not be replaced.
	if linkErr := os.Link(rotated, path); linkErr != nil {
		if !errors.Is(linkErr, fs.ErrExist) {
			err = errors.Join(err, fmt.Errorf("give the log its name back: %w", linkErr))
		}
		return err
	}
	return errors.Join(err, os.Remove(rotated))
}

// compress replaces the file by a compressed one. A file that is half written has a name of its own.
func compress(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	half := path + temporary
	out, err := os.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(half)
		}
	}()
	w := gzip.NewWriter(out)
	defer context.AfterFunc(ctx, func() { in.Close() })()
	_, err = io.Copy(w, in)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // in was closed for it
	}
	if err = errors.Join(err, w.Close(), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(half, path+zipped); err != nil {
		return err
	}
	return os.Remove(path)
}
