package bed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// coveredDir has the machine's cgroups while CoverCgroups shows others in their place.
const coveredDir = "covered"

// covers reports whether the mount shows the bed's cgroups alone, see CoverCgroups.
func (b *Bed) covers(m mount) bool { return m.isCgroup() && m.root == b.CgroupRoot }

// cgroupIn is the bed's cgroup in the hierarchy.
func (b *Bed) cgroupIn(m mount) string {
	if b.covers(m) {
		return m.point
	}
	return filepath.Join(m.point, b.CgroupRoot)
}

// CoverCgroups shows the bed's cgroups in the place of all, so that to those with the mounts of this process its root
// is the machine's: for programs that know where a node's cgroups are. The mounts must be this process's own, which the
// caller sees to. Clear undoes it.
func (b *Bed) CoverCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := errors.Join(passDown(m.point), b.cover(m)); err != nil {
			return fmt.Errorf("show the bed's cgroups at %s: %w", m.point, err)
		}
	}
	return nil
}

// passDown gives all controllers of a hierarchy of version 2 to the cgroups below its root: whoever sees one of those
// in its place can't ask for more. In version 1 there is nothing to do.
func passDown(point string) error {
	controllers, err := os.ReadFile(filepath.Join(point, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var wanted []string
	for _, controller := range strings.Fields(string(controllers)) {
		wanted = append(wanted, "+"+controller)
	}
	if err != nil || wanted == nil {
		return err
	}
	return os.WriteFile(filepath.Join(point, "cgroup.subtree_control"), []byte(strings.Join(wanted, " ")), 0o644)
}

// cover shows one hierarchy's. runc takes the first mount of a hierarchy for it: the machine's own has to come later.
func (b *Bed) cover(m mount) error {
	aside, kept := b.Path("aside"), filepath.Join(b.Path(coveredDir), m.point)
	for _, dir := range []string{aside, kept} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, step := range []func() error{
		func() error { return bind(m.point, aside) },
		func() error { return unmount(m.point) },
		func() error { return bind(filepath.Join(aside, b.CgroupRoot), m.point) },
		func() error { return bind(aside, kept) },
		func() error { return unmount(aside) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// uncover shows the machine's cgroups again.
func (b *Bed) uncover() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range all {
		if point, is := strings.CutPrefix(m.point, b.Path(coveredDir)+"/"); is {
			errs = append(errs, unmount("/"+point), bind(m.point, "/"+point))
		}
	}
	return errors.Join(errs...)
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", from, to, err)
	}
	return nil
}
