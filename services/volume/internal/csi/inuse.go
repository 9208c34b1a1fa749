package csi

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/attach"
)

// inUse are the persistent volumes that have a record on this node: those that a pod has or waits for, and those that
// are staged. It follows each record that is written or removed.
type inUse struct {
	mu sync.Mutex
	// byDir has the volume of each record, by the record's directory.
	byDir map[string]attach.ID
	// others are the names of attachable volumes that have no driver, by the place where a pod or the node has them.
	others map[string]string
	// read is true once all that was on disk at the start has been read.
	read    bool
	changes chan struct{}
}

func newInUse() *inUse {
	return &inUse{byDir: map[string]attach.ID{}, others: map[string]string{}, changes: make(chan struct{}, 1)}
}

// noted takes note of the record in dir; nil where it was removed.
func (u *inUse) noted(dir string, r record) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.set(dir, r)
}

// set is noted for those who have the lock.
func (u *inUse) set(dir string, r record) {
	id := attach.ID{Driver: r[keyDriver], Handle: r[keyHandle]}
	switch {
	case r[keyDriver] == "" || r[keyMode] == ephemeralMode:
		if _, known := u.byDir[dir]; !known {
			return
		}
		delete(u.byDir, dir)
	case u.byDir[dir] == id:
		return
	default:
		u.byDir[dir] = id
	}
	signal(u.changes)
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (u *inUse) isRead() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.read
}

// names are the volumes for the Node's status, of drivers whose volumes must be attached.
func (u *inUse) names(mustAttach func(driver string) bool) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := map[string]bool{}
	for _, id := range u.byDir {
		if mustAttach(id.Driver) {
			all[id.Name()] = true
		}
	}
	for _, name := range u.others {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// InUsePublisher is the writer of csi.volumes.
type InUsePublisher interface {
	Set(key string, v topic.VolumesInUse) error
}

// PublishInUse publishes the volumes that the node has or is about to have, whenever they change, until ctx ends. It
// begins when all records on disk have been read and the CSIDriver objects are known.
func PublishInUse(ctx context.Context, v *Volumes, out InUsePublisher) {
	var last []string
	told := false
	for failures := 0; ctx.Err() == nil; {
		list, err := inUseNow(v)
		if err == nil && (!told || !slices.Equal(list, last)) {
			err = out.Set("", topic.VolumesInUse{Names: list})
		}
		if err == nil {
			last, told, failures = list, true, 0
			select {
			case <-ctx.Done():
			case <-v.used.changes:
			case <-time.After(lookAgain):
			}
			continue
		}
		if failures++; failures == 10 {
			v.ports.Log.Warn("the volumes in use by this node can't be told, so none that must be attached can be mounted, "+
				"retrying", "error", err)
		}
		pause.For(ctx, pause.After(failures, firstPause/10, 2*firstPause))
	}
}

// prune forgets records that others have removed with the directory of a pod that has gone.
func (u *inUse) prune() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for dir := range u.byDir {
		if !exists(filepath.Join(dir, recordName)) {
			delete(u.byDir, dir)
		}
	}
}

// inUseNow are the volumes in use of drivers whose volumes must be attached.
func inUseNow(v *Volumes) ([]string, error) {
	if err := v.readOnce(); err != nil {
		return nil, err
	}
	v.used.prune()
	var unknown error
	list := v.used.names(func(driver string) bool {
		object, err := v.drivers.Object(driver)
		unknown = errors.Join(unknown, err)
		return attach.Must(object)
	})
	return list, unknown
}

// readOnce takes note of all records on disk. One that is damaged names no volume: it holds up nobody, as everywhere
// else.
func (d disk) readOnce() error {
	if d.used.isRead() {
		return nil
	}
	staged, err := d.staged()
	if err != nil {
		return err
	}
	ofPods, err := d.ofPods()
	if err != nil {
		return err
	}
	d.used.mu.Lock()
	defer d.used.mu.Unlock()
	// A record that a worker removes meanwhile must not come back: so it is read with the lock that noted takes after.
	for _, dir := range append(staged, ofPods...) {
		if r, err := readRecord(dir); err == nil && driverName.MatchString(r[keyDriver]) {
			d.used.set(dir, r)
		}
	}
	d.used.read = true
	return nil
}
