package plugin

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/userns"
	"kubelot.dev/services/volume/internal/atomicwriter"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
)

// podsync gives a pod its range before it asks for the sandbox, at about the time when the volumes are begun with.
const (
	rangePatience = 2 * time.Second
	rangeEvery    = 10 * time.Millisecond
)

var errNoRange = errors.New("podsync has not given the pod its user IDs (hostUsers: false) yet, to which the files " +
	"must belong because this kernel can't map the IDs of a volume in memory: the pod's Events say why it has no sandbox")

// owner is whom a volume in memory and its files belong to.
type owner struct {
	// ids are the pod's on the host, if they belong to these; otherwise none.
	ids userns.Range
	// uid and gid are those of the volume's directory on the host; nil means root's.
	uid, gid *int64
}

// ownerOf decides it. maps is true where the kernel can map the IDs of the volume's filesystem for a pod in a user
// namespace, which the runtime then does, as for all other volumes.
func ownerOf(ctx context.Context, r Request, maps bool) (owner, error) {
	fsGroup := payload.FSGroup(r.Pod)
	mapped := owner{gid: fsGroup}
	if maps || !userns.Wanted(r.Pod) {
		return mapped, nil
	}
	ids, err := rangeOf(ctx, r)
	if err != nil {
		return owner{}, err
	}
	if mounted, err := mounts.Mounted(r.Dir); mounted || err != nil {
		var stat unix.Stat_t
		if err == nil {
			err = unix.Stat(r.Dir, &stat)
		}
		if err != nil || !ids.Has(stat.Uid) {
			// Who mounted it knew of a kernel that can, whatever its release says.
			return mapped, err
		}
	}
	o := owner{ids: ids}
	if o.uid, err = o.host(nil); err != nil {
		return owner{}, err
	}
	o.gid, err = o.host(fsGroup)
	return o, err
}

// host is one of the pod's IDs on the host; nil means root's.
func (o owner) host(id *int64) (*int64, error) {
	var of int64
	if id != nil {
		of = *id
	}
	host, err := o.ids.Host(of)
	return &host, err
}

// onHost reports whether the files have the pod's IDs on the host.
func (o owner) onHost() bool { return o.ids.Length > 0 }

// files is whom the files of a volume belong to. One that would belong to another pod is an error.
func (o owner) files(r Request, p atomicwriter.Payload) (atomicwriter.Owner, error) {
	for _, file := range p {
		if o.onHost() && file.UID != nil {
			if _, err := o.host(file.UID); err != nil {
				return atomicwriter.Owner{}, err
			}
		}
	}
	return atomicwriter.Owner{GID: payload.FSGroup(r.Pod), First: int64(o.ids.First)}, nil
}

// rangeOf reads the pod's range.
func rangeOf(ctx context.Context, r Request) (userns.Range, error) {
	podDir := filepath.Join(r.Dir, "../../..")
	for until := time.Now().Add(rangePatience); ; pause.For(ctx, rangeEvery) {
		ids, err := userns.Read(podDir)
		switch {
		case err == nil:
			return ids, nil
		case ctx.Err() != nil:
			return ids, context.Cause(ctx)
		case time.Now().After(until):
			failure := FailedStep("FailedMount", "MountVolume.SetUp", r.Volume.Name, errNoRange)
			failure.OnItsWay = true
			return ids, failure
		}
	}
}
