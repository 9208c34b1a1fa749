package run

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"kubelot.dev/test/testbed/bed"
)

// The paths that the suite and its device plugin have in their code.
const (
	kubeletDir = "/var/lib/kubelet"
	cdiDir     = "/run/cdi"
)

// pluginFiles are what the device plugin has the runtime mount, which makes them where they are missing.
var pluginFiles = []string{"/tmp/Dev-1", "/tmp/Dev-2"}

// machinesMounts of the environment is the mount namespace of who has started this process with mounts of its own.
// Process 1 has it too, but not everybody may look.
const machinesMounts = "KUBELOT_MACHINES_MOUNTS"

// ownMounts is an error where mounts of this process are those of the machine.
func ownMounts() error {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("look for the mount namespace: %w", err)
	}
	if machines := os.Getenv(machinesMounts); machines == "" || machines == mine {
		return errors.New("the node suite mounts over /var/lib/kubelet: run it with mounts of its own, as make " +
			"conformance-node does (test/conformance/run/apart.sh)")
	}
	return nil
}

// mounts are what is mounted for the suite outside the bed.
type mounts struct {
	made []string // directories, to be removed in the end
	over []string // mount points
}

// mountFirst mounts what has to be there before the runtime is, which watches the directory that it finds.
func mountFirst() (*mounts, error) {
	m := &mounts{}
	// Pods see later mounts of the node where they ask for it, as on a machine with systemd.
	if err := syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("share the mounts with pods: %w", err)
	}
	return m, m.tmpfs(cdiDir)
}

// give gives the suite's paths to the bed.
func (m *mounts) give(b *bed.Bed) error {
	root := b.Path("kubelet")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("mount over %s: %w", kubeletDir, err)
	}
	return errors.Join(m.bind(root, kubeletDir), m.tmpfs(b.Path("run")))
}

// bind mounts a directory over another. What is then mounted in it appears there alone and not in the first one too.
func (m *mounts) bind(from, to string) error {
	if err := m.dir(to); err != nil {
		return err
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", from, to, err)
	}
	m.over = append(m.over, to)
	for _, how := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", to, "", how, ""); err != nil {
			return fmt.Errorf("share the mounts of %s: %w", to, err)
		}
	}
	return nil
}

func (m *mounts) tmpfs(to string) error {
	if err := m.dir(to); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", to, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount over %s: %w", to, err)
	}
	m.over = append(m.over, to)
	return nil
}

func (m *mounts) dir(path string) error {
	if err := os.Mkdir(path, 0o755); err == nil {
		m.made = append(m.made, path)
	} else if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("mount over %s: %w", path, err)
	}
	return nil
}

// unmount removes it all, with what is mounted in it.
func (m *mounts) unmount() error {
	var errs []error
	for _, path := range m.over {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	for _, path := range append(m.made, pluginFiles...) {
		// Somebody else may have found it useful meanwhile: only empty directories go.
		_ = syscall.Rmdir(path)
	}
	return errors.Join(errs...)
}
