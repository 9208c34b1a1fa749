package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/daemon/atomicfile"
)

// recordName is the kubelet's file beside a volume's directory.
const recordName = "vol_data.json"

// maxRecord bounds what is read as a record.
const maxRecord = 64 << 10

// The keys of a record are the kubelet's, and three that it ignores.
const (
	keySpecName   = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyMode       = "volumeLifecycleMode"
	keyAttachment = "attachmentID"
	keySELinux    = "seLinuxMountContext"
	keyStep       = "kubelot.dev/step"
	keyBoot       = "kubelot.dev/boot"
	// keyMounted is of a step that a driver has done with a mount.
	keyMounted = "kubelot.dev/mounted"
)

// ephemeralMode is the mode of a volume of the pod's own spec.
const ephemeralMode = string(storagev1.VolumeLifecycleEphemeral)

// record is the content of a vol_data.json.
type record map[string]string

// errDamaged is of a record that can't be read, as the kubelet may leave one when the power fails, and of anything else
// that has its name.
var errDamaged = errors.New("it is damaged")

// readRecord reads the record in dir; nil where there is none.
func readRecord(dir string) (record, error) {
	path := filepath.Join(dir, recordName)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w: it is no file", path, errDamaged)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil //nolint:nilnil // nil is the record that doesn't exist
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", path, errDamaged, err)
	}
	if r[keyDriver] == "" || r[keyHandle] == "" {
		return nil, fmt.Errorf("read %s: %w: it names no driver or no volume", path, errDamaged)
	}
	return r, nil
}

// isOf reports whether the record is of the volume.
func (r record) isOf(t target) bool { return r[keyDriver] == t.driver && r[keyHandle] == t.handle }

// with is the record with what another agent has noted of the same volume in dir besides, such as a kubelet its SELinux
// label.
func (r record) with(dir string) record {
	old, err := readRecord(dir)
	if err != nil || old[keyDriver] != r[keyDriver] || old[keyHandle] != r[keyHandle] {
		return r
	}
	for _, key := range []string{keyStep, keyBoot, keyMounted} {
		delete(old, key)
	}
	return merged(old, r)
}

// step is how far the record says the volume is. Mounts of an earlier boot are gone, whatever the driver remembers.
func (r record) step(boot string) step {
	switch {
	case r == nil:
		return stepNone
	case r[keyStep] == string(stepWanted):
		return stepWanted
	case r[keyStep] == "" || r[keyBoot] != boot || boot == "":
		return stepUncertain
	}
	return step(r[keyStep])
}

// write writes the record with that step into dir; stepNone removes it. The file is on disk when write returns.
func (r record) write(dir string, s step, boot string) error {
	path := filepath.Join(dir, recordName)
	if s == stepNone {
		// A process that was killed may have left an unfinished one.
		for _, file := range []string{path, path + atomicfile.Suffix} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the record of a volume: %w", err)
			}
		}
		return nil
	}
	content := make(record, len(r)+2)
	for key, value := range r {
		content[key] = value
	}
	delete(content, keyStep)
	delete(content, keyBoot)
	if s == stepUncertain {
		delete(content, keyMounted)
	} else {
		content[keyStep], content[keyBoot] = string(s), boot
	}
	data, err := json.Marshal(content)
	if err == nil {
		err = atomicfile.WriteDurably(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the record of a volume: %w", err)
	}
	return nil
}
