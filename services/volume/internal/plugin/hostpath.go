package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hostPath is a file or directory of the host.
type hostPath struct{}

const hostPathName = "kubernetes.io/host-path"

func (hostPath) Mount(_ context.Context, r Request) (Result, error) {
	return HostPath(r.Volume.HostPath)
}

// HostPath is the volume of a host path, of the pod itself or of a persistent volume.
func HostPath(source *corev1.HostPathVolumeSource) (Result, error) {
	name := source.Path
	if slices.Contains(strings.Split(name, "/"), "..") {
		return Result{}, fmt.Errorf("invalid HostPath `%s`: must not contain '..'", name)
	}
	if !filepath.IsAbs(name) {
		name = "/" + name // as with the kubelet; the runtime would look for it elsewhere
	}
	if t := source.Type; t != nil {
		if err := checkType(name, *t); err != nil {
			return Result{}, err
		}
	}
	return Result{HostPath: name, Plugin: hostPathName}, nil
}

func (hostPath) Unmount(context.Context, string) error { return nil }

// checks are what each type wants to find, and the kubelet's words where it doesn't.
var checks = map[corev1.HostPathType]struct {
	is   func(fs.FileMode) bool
	text string
}{
	corev1.HostPathDirectoryOrCreate: {fs.FileMode.IsDir, "directory"},
	corev1.HostPathDirectory:         {fs.FileMode.IsDir, "directory"},
	corev1.HostPathFileOrCreate:      {fs.FileMode.IsRegular, "file"},
	corev1.HostPathFile:              {fs.FileMode.IsRegular, "file"},
	corev1.HostPathSocket:            {func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }, "socket file"},
	corev1.HostPathCharDev:           {func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }, "character device"},
	corev1.HostPathBlockDev: {func(m fs.FileMode) bool {
		return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
	}, "block device"},
}

func checkType(name string, t corev1.HostPathType) error {
	if t == corev1.HostPathUnset {
		return nil
	}
	check, ok := checks[t]
	if !ok {
		return fmt.Errorf("%s is an invalid volume type", t)
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if made, err := create(name, t); made || err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not a %s: %w", name, check.text, err)
	}
	if !check.is(info.Mode()) {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", name, check.text)
	}
	return nil
}

// create makes what is missing where the type says so.
func create(name string, t corev1.HostPathType) (made bool, err error) {
	switch t {
	case corev1.HostPathDirectoryOrCreate:
		return true, os.MkdirAll(name, 0o755)
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return true, fmt.Errorf("create the file %s: %w", name, err)
		}
		return true, f.Close()
	}
	return false, nil
}
