package persistent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	mount "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

const (
	localName = "kubernetes.io/local-volume"
	localDir  = "kubernetes.io~local-volume"
)

// local are directories and disks of this node (KEP-121).
type local struct {
	root    string
	mounter *mount.SafeFormatAndMount
	// volumes are locked while they are mounted for a pod or unmounted, and paths while something is made of them: two
	// volumes may name the same disk.
	volumes, paths plugin.Locks
}

func newLocal(rootDir string) *local {
	return &local{root: rootDir, mounter: mount.NewSafeFormatAndMount(mount.NewWithoutSystemd(""), utilexec.New())}
}

// mountPoint is where a disk is mounted for all pods.
func (l *local) mountPoint(volume string) string {
	return filepath.Join(l.root, "plugins", localName, "mounts", volume)
}

// deviceMap is where a disk is for the pods that get it as a device.
func (l *local) deviceMap(volume string) string {
	return filepath.Join(l.root, "plugins", localDir, plugin.DevicesDir, volume)
}

// device is where a pod gets a disk as a device.
func (l *local) device(volume, uid string) device.Map {
	return device.Map{Link: l.podDir(uid, true, volume), Point: filepath.Join(l.deviceMap(volume), uid)}
}

func (l *local) podDir(uid string, block bool, volume string) string {
	return plugin.Kind{Dir: localDir, Block: block}.VolumeDir(filepath.Join(l.root, "pods", uid), volume)
}

// path is the path of a local volume, as the kubelet understands it.
func (b bound) path() (string, error) {
	path := b.volume.Spec.Local.Path
	switch {
	case path == "":
		return "", b.failed("NewMounter initialization", "MapPodDevice",
			errors.New("local volume source is nil or local path is not set"))
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", b.failed("SetUp", "MapPodDevice", fmt.Errorf("invalid path: %s must not contain '..'", path))
	}
	return filepath.Clean("/" + path), nil
}

// users are the pods that have the volume, or had it and have not been cleaned up yet.
func (l *local) users(volume string, block bool) ([]string, error) {
	pods, err := mounts.Names(filepath.Join(l.root, "pods"))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods, func(uid string) bool {
		_, err := os.Lstat(l.podDir(uid, block, volume))
		return errors.Is(err, fs.ErrNotExist)
	}), nil
}
