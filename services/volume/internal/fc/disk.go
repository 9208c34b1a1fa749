package fc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/scsi"
)

const (
	// Name is the kubelet's name of the plug-in, and Dir that of its directories below pods.
	Name = "kubernetes.io/fc"
	Dir  = "kubernetes.io~fc"

	lunInfix = "-lun-"
)

// Disk is a disk by the ways to it, which are WWNs and Lun, or by what it calls itself, which are WWIDs. Its JSON is
// the record.
type Disk struct {
	// Volume is the name of the volume; empty for a disk of which only its directory is known.
	Volume string   `json:"volume"`
	WWNs   []string `json:"targetWWNs,omitempty"`
	Lun    string   `json:"lun,omitempty"`
	WWIDs  []string `json:"wwids,omitempty"`
	// Attached is the disk's name in the Node's status.
	Attached string `json:"attached"`
}

// New is the disk of the volume with that name.
func New(volume string, s *corev1.FCVolumeSource) (Disk, error) {
	d := Disk{Volume: volume}
	switch {
	case len(s.TargetWWNs) > 0 && s.Lun != nil:
		if *s.Lun < 0 {
			return Disk{}, fmt.Errorf("%d can't be the LUN of a disk", *s.Lun)
		}
		d.WWNs, d.Lun = s.TargetWWNs, strconv.Itoa(int(*s.Lun))
		d.Attached = fmt.Sprintf("%s/%v:%s", Name, d.WWNs, d.Lun)
	case len(s.WWIDs) > 0:
		d.Attached = fmt.Sprintf("%s/%v", Name, s.WWIDs)
		for _, id := range s.WWIDs {
			d.WWIDs = append(d.WWIDs, strings.ReplaceAll(id, " ", "_")) // as udev does
		}
	default:
		return Disk{}, errors.New("no fc disk information found: the volume has neither targetWWNs with a lun, nor wwids")
	}
	for _, part := range append(d.WWNs, d.WWIDs...) {
		if part == "" || part == plugin.DevicesDir || strings.HasPrefix(part, ".") || !scsi.Nameable(part) {
			return Disk{}, fmt.Errorf("%q can't be a world wide name or identifier", part)
		}
	}
	return d, nil
}

// Global is the disk's global directory below the kubelet's root directory: where it is mounted, or where pods have it
// as a device. It is named by all of the disk's names.
func (d Disk) Global(root string, block bool) string {
	if len(d.WWNs) > 0 {
		return filepath.Join(scsi.Top(root, Name, block), strings.Join(d.WWNs, "-")+lunInfix+d.Lun)
	}
	return filepath.Join(scsi.Top(root, Name, block), strings.Join(d.WWIDs, "-"))
}

// Top is the directory of all global ones.
func Top(root string) string { return scsi.Top(root, Name, false) }

// Globals are the global directories of all disks that are mounted, or that pods have as devices.
func Globals(root string, block bool) ([]string, error) {
	entries, err := scsi.Entries(scsi.Top(root, Name, block), "")
	var all []string
	for _, path := range entries {
		// The record may be all that is left: the directory of a device goes before the disk does.
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "."), ".json")
		if global := filepath.Join(filepath.Dir(path), name); scsi.Beside(global) == path {
			path = global
		}
		name = filepath.Base(path)
		if name != plugin.DevicesDir && !strings.HasPrefix(name, ".") && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all, err
}

// Read is the disk of a global directory: by its record, or by the directory's name where there is none, as with a
// disk that a kubelet has mounted.
func Read(global string) (Disk, error) {
	named := byName(filepath.Base(global))
	data, err := os.ReadFile(scsi.Beside(global))
	if os.IsNotExist(err) {
		return named, nil
	}
	if err != nil {
		return Disk{}, err
	}
	var d Disk
	// One that is damaged says no more than the name.
	_ = json.Unmarshal(data, &d)
	if len(d.WWNs)+len(d.WWIDs) == 0 {
		return named, nil
	}
	d.Attached = cmp.Or(d.Attached, named.Attached)
	return d, nil
}

// byName is what the directory's name says of the disk.
func byName(name string) Disk {
	if at := strings.LastIndex(name, lunInfix); at > 0 {
		d := Disk{WWNs: strings.Split(name[:at], "-"), Lun: name[at+len(lunInfix):]}
		d.Attached = fmt.Sprintf("%s/%v:%s", Name, d.WWNs, d.Lun)
		return d
	}
	ids := strings.Split(name, "-")
	return Disk{WWIDs: ids, Attached: fmt.Sprintf("%s/%v", Name, ids)}
}
