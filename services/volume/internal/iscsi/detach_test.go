package iscsi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A device that can't be taken away while another disk needs its session is reported, and the disk stays on record
// until it can.
func TestDeviceThatStaysIsReported(t *testing.T) {
	b := newBed(t)
	_, other := b.attach("a", source(0))
	_, global := b.attach("b", source(1))
	b.calls()
	const file = "sys/block/sd2-1/device/delete"
	must(t, os.Remove(filepath.Join(b.dir, file)))
	must(t, os.Mkdir(filepath.Join(b.dir, file), 0o755))
	err := b.disks.Detach(t.Context(), global)
	if err == nil || !strings.HasPrefix(err.Error(), "iscsi: failed to detach disk: ") ||
		!strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(global); err != nil {
		t.Errorf("its record: %v", err)
	}
	must(t, os.Remove(filepath.Join(b.dir, file)))
	b.write(file, "")
	b.detach(global)
	b.want("while another disk needs the session", []string{}...)
	// With its session, a device goes by itself: the next try finds none.
	must(t, os.Remove(filepath.Join(b.dir, "sys/block/sd2-0/device/delete")))
	must(t, os.Mkdir(filepath.Join(b.dir, "sys/block/sd2-0/device/delete"), 0o755))
	if err := b.disks.Detach(t.Context(), other); err == nil {
		t.Error("what could not be taken away isn't reported")
	}
	b.detach(other)
	if left, err := b.disks.sys.sessions(iqn); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The node may have found a logical volume on a disk that a pod has as a device. A pod gets the disk nevertheless, and
// the disk goes without it: multipath would refuse to flush it for ever.
func TestLogicalVolumeIsNoMultipathDevice(t *testing.T) {
	b := newBed(t)
	b.write("sys/block/dm-7/slaves/1", "") // the disk is luns/1
	b.write("sys/block/dm-7/slaves/sd2-1", "")
	b.write("sys/block/dm-7/dm/uuid", "LVM-8yQXDp\n")
	device, global := b.attach("pv", source(1))
	if !strings.HasSuffix(device, "-lun-1") {
		t.Errorf("the pod gets %s", device)
	}
	b.detach(global)
	if line(b.dir, "sys/block/sd2-1/device/delete") != "1" {
		t.Error("the disk was not taken away")
	}
}

func TestMultipathDeviceIsFlushed(t *testing.T) {
	b := newBed(t)
	program := "#!/bin/sh\necho \"$@\" >" + b.dir + "/flushed\n"
	must(t, os.WriteFile(filepath.Join(b.dir, "multipath"), []byte(program), 0o755))
	t.Setenv("PATH", b.dir+":"+os.Getenv("PATH"))
	b.write("sys/block/dm-7/slaves/sd2-1", "")
	b.write("sys/block/dm-7/dm/uuid", "mpath-3600508b400105e21\n")
	_, global := b.attach("pv", source(1))
	b.detach(global)
	if flushed := line(b.dir, "flushed"); flushed != "-f /dev/dm-7" {
		t.Errorf("multipath was called with %q", flushed)
	}
}
