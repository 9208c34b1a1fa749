package iscsi

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kubelot.dev/services/volume/internal/scsi"
)

// sysfs is what the kernel shows of sessions and disks.
type sysfs struct{ scsi.Places }

// session is one with a target, on a SCSI host of its own.
type session struct {
	host int
	dir  string
}

// sessions are those with the target. One that ends meanwhile is none.
func (s sysfs) sessions(iqn string) ([]session, error) {
	hosts, err := scsi.Entries(s.Path("class", "iscsi_host"), "host")
	if err != nil {
		return nil, fmt.Errorf("list the sessions with iSCSI targets: %w", err)
	}
	var found []session
	for _, dir := range hosts {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "host"))
		if err != nil {
			continue
		}
		dirs, err := scsi.Entries(filepath.Join(dir, "device"), "session")
		if err != nil {
			return nil, fmt.Errorf("list the sessions with iSCSI targets: %w", err)
		}
		for _, dir := range dirs {
			if line(dir, "iscsi_session", filepath.Base(dir), "targetname") == iqn {
				found = append(found, session{number, dir})
			}
		}
	}
	return found, nil
}

// line is the content of a file of one line; empty where it can't be read.
func line(parts ...string) string {
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// hosts are the SCSI hosts of the sessions with a target, by the portals that the sessions were made for and by those
// that they use by now.
func (s sysfs) hosts(iqn string) (map[string]int, error) {
	sessions, err := s.sessions(iqn)
	if err != nil {
		return nil, err
	}
	byPortal := map[string]int{}
	for _, at := range sessions {
		connections, err := scsi.Entries(at.dir, "connection")
		if err != nil {
			return nil, fmt.Errorf("list the connections with %s: %w", iqn, err)
		}
		for _, dir := range connections {
			dir = filepath.Join(dir, "iscsi_connection", filepath.Base(dir))
			for _, prefix := range []string{"", "persistent_"} {
				address, port := line(dir, prefix+"address"), line(dir, prefix+"port")
				if address != "" && port != "" {
					byPortal[net.JoinHostPort(address, port)] = at.host
				}
			}
		}
	}
	return byPortal, nil
}

// scan has the kernel look for one disk of a session. Others that the target has for this node aren't looked for:
// nobody would take them away when they go.
func (s sysfs) scan(host int, lun string) error {
	return s.Scan(fmt.Sprintf("host%d", host), "0 0 "+lun)
}

// disks are the names of the disk's devices, such as sdb, one for each session with its target.
func (s sysfs) disks(iqn, lun string) ([]string, error) {
	sessions, err := s.sessions(iqn)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, at := range sessions {
		devices, err := scsi.Entries(filepath.Join(at.dir, fmt.Sprintf("target%d:0:0", at.host),
			fmt.Sprintf("%d:0:0:%s", at.host, lun), "block"), "")
		if err != nil {
			return nil, fmt.Errorf("list the devices of %s: %w", iqn, err)
		}
		for _, path := range devices {
			names = append(names, filepath.Base(path))
		}
	}
	return names, nil
}
