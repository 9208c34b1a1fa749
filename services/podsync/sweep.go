package podsync

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/podsync/internal/cleanup"
)

// destroyWait bounds the removal of one orphaned cgroup.
const destroyWait = time.Second

// sweep has the cgroups and directories removed of pods that neither a source nor the runtime knows. It takes as long as the disk
// does, so nothing waits for it but a pod that comes (again) under a UID that is being swept.
func (d *dispatcher) sweep(wanted map[types.UID]bool) {
	if d.sweeping != nil {
		return
	}
	observed := map[types.UID]bool{}
	for uid := range d.observed {
		observed[types.UID(uid)] = true
	}
	groups, err := d.cgroups.List()
	if err != nil {
		d.log.Warn("pod cgroups can't be listed", "error", err)
	}
	var found []types.UID
	for uid := range groups {
		found = append(found, uid)
	}
	dirs, err := cleanup.PodDirs(d.cfg.RootDir)
	if err != nil {
		d.log.Warn("pod directories can't be listed", "error", err)
	}
	found, dirs = cleanup.Orphans(found, wanted, observed), cleanup.Orphans(dirs, wanted, observed)
	if len(found)+len(dirs) == 0 {
		return
	}
	d.sweeping = map[types.UID]bool{}
	for _, uid := range slices.Concat(found, dirs) {
		d.sweeping[uid] = true
	}
	d.wg.Go(func() {
		d.removeOrphans(found, dirs)
		select {
		case d.inbox <- func() {
			d.sweeping = nil
			d.sync()
		}:
		case <-d.ctx.Done():
		}
	})
}

// removeOrphans removes what it can; the next sweep tries the rest again.
func (d *dispatcher) removeOrphans(groups, dirs []types.UID) {
	for _, uid := range groups {
		ctx, cancel := context.WithTimeout(d.ctx, destroyWait)
		if err := d.cgroups.Destroy(ctx, uid); err != nil {
			d.log.Warn("orphaned pod cgroup can't be removed; trying again later", "uid", string(uid), "error", err)
		}
		cancel()
	}
	for _, uid := range dirs {
		if err := cleanup.RemovePodDir(d.cfg.RootDir, uid); err != nil {
			d.log.Info("orphaned pod directory can't be removed yet", "uid", string(uid), "error", err)
			continue
		}
		d.actor.UserNS.Release(uid)
	}
}
