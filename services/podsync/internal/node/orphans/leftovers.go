package orphans

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// destroyWait bounds the removal of one orphaned cgroup.
const destroyWait = time.Second

// Cgroups are the cgroups of pods.
type Cgroups interface {
	List() (map[types.UID]string, error)
	Destroy(ctx context.Context, uid types.UID) error
}

// Directories are the directories of pods.
type Directories interface {
	List() ([]types.UID, error)
	Remove(uid types.UID) error
}

// Remover finds and removes what pods have left. Its methods take as long as the disk does, and systemd.
type Remover struct {
	Cgroups Cgroups
	Dirs    Directories
	Log     *slog.Logger
}

// Leftovers are the pods that have a cgroup, and those that have a directory.
type Leftovers struct{ cgroups, dirs []types.UID }

// Find finds what there is of all pods.
func (r *Remover) Find() (found Leftovers) {
	list, err := r.Cgroups.List()
	if err != nil {
		r.Log.Warn("can't list pod cgroups", "error", err)
	}
	for uid := range list {
		found.cgroups = append(found.cgroups, uid)
	}
	if found.dirs, err = r.Dirs.List(); err != nil {
		r.Log.Warn("can't list pod directories", "error", err)
	}
	return found
}

// Remove removes what it can; the next time tries the rest again.
func (r *Remover) Remove(ctx context.Context, what Leftovers) {
	for _, uid := range what.cgroups {
		ctx, cancel := context.WithTimeout(ctx, destroyWait)
		if err := r.Cgroups.Destroy(ctx, uid); err != nil {
			r.Log.Warn("can't remove an orphaned pod cgroup, retrying later", "uid", string(uid), "error", err)
		}
		cancel()
	}
	for _, uid := range what.dirs {
		if err := r.Dirs.Remove(uid); err != nil {
			r.Log.Info("can't remove an orphaned pod directory yet", "uid", string(uid), "error", err)
		}
	}
}

// Except are the leftovers of pods that are neither wanted nor observed.
func (l Leftovers) Except(wanted, observed map[types.UID]bool) Leftovers {
	return Leftovers{cgroups: orphansOf(l.cgroups, wanted, observed), dirs: orphansOf(l.dirs, wanted, observed)}
}

// UIDs are the pods that have left something.
func (l Leftovers) UIDs() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, uid := range slices.Concat(l.cgroups, l.dirs) {
		uids[uid] = true
	}
	return uids
}

// PodDirectories are the directories below <RootDir>/pods.
type PodDirectories struct {
	RootDir string
	// Removed is called for each pod whose directory was removed.
	Removed func(uid types.UID) error
}

// List lists the UIDs that have a directory.
func (p PodDirectories) List() ([]types.UID, error) { return podDirs(p.RootDir) }

// Remove removes a pod's directory.
func (p PodDirectories) Remove(uid types.UID) error {
	if err := RemovePodDir(p.RootDir, uid); err != nil {
		return err
	}
	return p.Removed(uid)
}
