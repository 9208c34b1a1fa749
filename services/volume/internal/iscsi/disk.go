package iscsi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/scsi"
)

const (
	// Name is the kubelet's name of the plug-in, and Dir that of its directories below pods.
	Name = "kubernetes.io/iscsi"
	Dir  = "kubernetes.io~iscsi"
	// recordName is the file with the record, in the disk's global directory.
	recordName = "iscsi.json"
	lunInfix   = "-lun-"
	// defaultPort is the target's where the portal has none, and defaultInterface the initiator's.
	defaultPort, defaultInterface = ":3260", "default"
)

// Disk is a disk of a target. Its JSON is the record, of which the kubelet has all fields but one.
type Disk struct {
	// VolName is the name of the volume.
	VolName string `json:"VolName"`
	// Portals are the addresses of the target, by each of which there is a path to the disk.
	Portals []string `json:"Portals"`
	Iqn     string   `json:"Iqn"`
	Lun     string   `json:"Lun"`
	// InitIface is the interface of iscsiadm that the user names, and Iface the one that is used: a copy of it where the
	// volume has an InitiatorName.
	InitIface     string `json:"InitIface"`
	Iface         string `json:"Iface"`
	InitiatorName string `json:"InitiatorName"`
	// Attached is the disk's name in the Node's status.
	Attached string `json:"kubelot.dev/volume,omitempty"`

	discoveryCHAP, sessionCHAP bool
}

// New is the disk of the volume with that name.
func New(volume string, s *corev1.ISCSIPersistentVolumeSource) (Disk, error) {
	d := Disk{
		VolName: volume, Iqn: s.IQN, Lun: strconv.Itoa(int(s.Lun)), InitIface: cmp.Or(s.ISCSIInterface, defaultInterface),
		Attached:      fmt.Sprintf("%s/%s:%s:%d", Name, s.TargetPortal, s.IQN, s.Lun),
		discoveryCHAP: s.DiscoveryCHAPAuth, sessionCHAP: s.SessionCHAPAuth,
	}
	for _, p := range append([]string{s.TargetPortal}, s.Portals...) {
		if !strings.Contains(p, ":") {
			p += defaultPort
		}
		d.Portals = append(d.Portals, p)
	}
	d.Iface = d.InitIface
	if s.InitiatorName != nil && *s.InitiatorName != "" {
		d.InitiatorName, d.Iface = *s.InitiatorName, d.Portals[0]+":"+volume
	}
	for _, part := range append(d.Portals, d.Iqn, d.Iface) {
		if part == "" || !scsi.Nameable(part) {
			return Disk{}, fmt.Errorf("%q can't be a portal, a target or an interface of iSCSI", part)
		}
	}
	if s.Lun < 0 {
		return Disk{}, fmt.Errorf("%d can't be the LUN of a disk", s.Lun)
	}
	return d, nil
}

// NeedsSecret reports whether the initiator must say who it is.
func (d Disk) NeedsSecret() bool { return d.discoveryCHAP || d.sessionCHAP }

// Global is the disk's global directory below the kubelet's root directory: where it is mounted, or where pods have it
// as a device.
func (d Disk) Global(root string, block bool) string {
	return filepath.Join(scsi.Top(root, Name, block), "iface-"+d.Iface, d.Portals[0]+"-"+d.Iqn+lunInfix+d.Lun)
}

// Top is the directory of all global ones.
func Top(root string) string { return scsi.Top(root, Name, false) }

// Globals are the global directories of all disks that are mounted, or that pods have as devices.
func Globals(root string, block bool) ([]string, error) {
	interfaces, err := scsi.Entries(scsi.Top(root, Name, block), "iface-")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, dir := range interfaces {
		disks, err := scsi.Entries(dir, "")
		if err != nil {
			return nil, err
		}
		for _, disk := range disks {
			if name := filepath.Base(disk); strings.Contains(name, lunInfix) && !strings.HasPrefix(name, ".") {
				all = append(all, disk)
			}
		}
	}
	return all, nil
}

// Read is the disk of a global directory: by its record, or by the directory's name where there is none, as with a
// disk that a kubelet has mounted.
func Read(global string) (Disk, error) {
	named, nameErr := byName(global)
	records := []string{scsi.Beside(global), filepath.Join(global, recordName)}
	// A file of that name in a volume is its user's.
	if mounted, err := mountpoint.Mounted(global); mounted || err != nil {
		records = records[:1]
	}
	for _, path := range records {
		var d Disk
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err == nil && len(d.Portals) > 0 {
			d.Attached = cmp.Or(d.Attached, named.Attached)
			return d, nil
		}
	}
	return named, nameErr
}

// byName is what the directory's name says of the disk.
func byName(global string) (Disk, error) {
	name := filepath.Base(global)
	at := strings.LastIndex(name, lunInfix)
	// An address has dashes if it is the name of a host.
	target := len(name)
	for _, format := range []string{"-iqn.", "-eui.", "-naa."} {
		if i := strings.Index(name, format); i >= 0 {
			target = min(target, i)
		}
	}
	if target > at {
		return Disk{}, fmt.Errorf("%s is not the directory of an iSCSI disk", global)
	}
	iface := strings.TrimPrefix(filepath.Base(filepath.Dir(global)), "iface-")
	d := Disk{
		Portals: []string{name[:target]}, Iqn: name[target+1 : at], Lun: name[at+len(lunInfix):],
		InitIface: iface, Iface: iface,
	}
	d.Attached = fmt.Sprintf("%s/%s:%s:%s", Name, d.Portals[0], d.Iqn, d.Lun)
	return d, nil
}

// write puts the record into the global directory and beside it. Whoever is killed meanwhile leaves no half of it.
func (d Disk) write(global string) error {
	if err := scsi.Record(global, d); err != nil {
		return err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(global, recordName), data, 0o600)
}
