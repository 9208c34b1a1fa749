package iscsi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is what the kernel shows of sessions and disks: /sys, or a directory like it.
type sysfs string

func (s sysfs) path(parts ...string) string {
	return filepath.Join(append([]string{string(s)}, parts...)...)
}

// session is one with a target, on a SCSI host of its own.
type session struct {
	host int
	dir  string
}

// sessions are those with the target. One that ends meanwhile is none.
func (s sysfs) sessions(iqn string) ([]session, error) {
	hosts, err := entries(s.path("class", "iscsi_host"), "host")
	if err != nil {
		return nil, fmt.Errorf("list the sessions with iSCSI targets: %w", err)
	}
	var found []session
	for _, dir := range hosts {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "host"))
		if err != nil {
			continue
		}
		dirs, err := entries(filepath.Join(dir, "device"), "session")
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
		connections, err := entries(at.dir, "connection")
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
	return tell(s.path("class", "scsi_host", fmt.Sprintf("host%d", host), "scan"), "0 0 "+lun)
}

// disks are the names of the disk's devices, such as sdb, one for each session with its target.
func (s sysfs) disks(iqn, lun string) ([]string, error) {
	sessions, err := s.sessions(iqn)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, at := range sessions {
		devices, err := entries(filepath.Join(at.dir, fmt.Sprintf("target%d:0:0", at.host),
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

// multipath is the name of the device that has the disk as one of its paths, such as dm-0; empty where there is none.
func (s sysfs) multipath(disk string) string {
	maps, err := entries(s.path("block"), "dm-")
	if err != nil {
		return ""
	}
	for _, dir := range maps {
		if _, err := os.Lstat(filepath.Join(dir, "slaves", disk)); err == nil {
			return filepath.Base(dir)
		}
	}
	return ""
}

// remove takes a device away, which nobody uses.
func (s sysfs) remove(disk string) error {
	err := tell(s.path("block", disk, "device", "delete"), "1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func tell(path, what string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(what)
	return errors.Join(err, file.Close())
}
