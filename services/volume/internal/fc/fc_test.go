package fc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/scsi"
)

const (
	wwn   = "500a0981891b8dc5"
	other = "500a0981991b8dc5"
	id    = "3600508b400105e210000900000490000"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bed is a node with two hosts of SCSI.
type bed struct {
	t     *testing.T
	dir   string
	disks *Disks
}

func newBed(t *testing.T) *bed {
	dir := t.TempDir()
	b := &bed{t: t, dir: dir, disks: NewDisks(filepath.Join(dir, "root"), scsi.Places{
		Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev"), ByPath: filepath.Join(dir, "by-path"),
		ByID: filepath.Join(dir, "by-id"),
	})}
	b.disks.DeviceWait, b.disks.MultipathWait = 0, 0
	b.write("sys/class/scsi_host/host1/scan")
	b.write("sys/class/scsi_host/host7/scan")
	return b
}

func (b *bed) write(name string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(b.t, os.WriteFile(path, nil, 0o600))
}

// disk is a disk of the kernel, with the links that lead to it.
func (b *bed) disk(name string, links ...string) {
	b.t.Helper()
	b.write("dev/" + name)
	b.write("sys/block/" + name + "/device/delete")
	for _, link := range links {
		path := filepath.Join(b.dir, link)
		must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(b.t, os.Symlink(filepath.Join(b.dir, "dev", name), path))
	}
}

// join makes a multipath device of the disks.
func (b *bed) join(name string, disks ...string) {
	b.t.Helper()
	b.write("dev/" + name)
	for _, disk := range disks {
		b.write("sys/block/" + name + "/slaves/" + disk)
	}
	uuid := "sys/block/" + name + "/dm/uuid"
	b.write(uuid)
	must(b.t, os.WriteFile(filepath.Join(b.dir, uuid), []byte("mpath-"+id+"\n"), 0o600))
}

// reads is what was written into a file of the kernel.
func (b *bed) reads(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	must(b.t, err)
	return string(data)
}

func byWay(lun int32, wwns ...string) *corev1.FCVolumeSource {
	return &corev1.FCVolumeSource{TargetWWNs: wwns, Lun: &lun}
}

func byItself(ids ...string) *corev1.FCVolumeSource { return &corev1.FCVolumeSource{WWIDs: ids} }

// attaches expects that the disk has the device.
func (b *bed) attaches(s *corev1.FCVolumeSource, device string) (global string) {
	b.t.Helper()
	d, err := New("pv", s)
	must(b.t, err)
	global = d.Global(b.disks.root, false)
	got, err := b.disks.Attach(b.t.Context(), d, global, func() {})
	if want := filepath.Join(b.dir, "dev", device); err != nil || got != want {
		b.t.Errorf("the device is %s, %v; want %s", got, err, want)
	}
	return global
}

func (b *bed) detaches(global string, removed ...string) {
	b.t.Helper()
	must(b.t, b.disks.Detach(b.t.Context(), global))
	must(b.t, b.disks.Detach(b.t.Context(), global))
	disks, err := filepath.Glob(filepath.Join(b.dir, "sys/block/*/device/delete"))
	must(b.t, err)
	var gone []string
	for _, file := range disks {
		data, err := os.ReadFile(file)
		must(b.t, err)
		if string(data) == "1" {
			gone = append(gone, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	if !slices.Equal(gone, removed) {
		b.t.Errorf("the disks %q were removed, want %q", gone, removed)
	}
	if left, err := scsi.Entries(filepath.Dir(global), ""); err != nil || len(left) > 0 {
		b.t.Errorf("%q are left, %v", left, err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		source           *corev1.FCVolumeSource
		global, attached string
	}{
		{byWay(3, wwn, other), wwn + "-" + other + "-lun-3", "kubernetes.io/fc/[" + wwn + " " + other + "]:3"},
		{byItself(id), id, "kubernetes.io/fc/[" + id + "]"},
		{byItself("a b", id), "a_b-" + id, "kubernetes.io/fc/[a b " + id + "]"},
	} {
		d, err := New("pv", c.source)
		must(t, err)
		if d.Attached != c.attached {
			t.Errorf("in the Node's status it is %q, want %q", d.Attached, c.attached)
		}
		for block, dir := range map[bool]string{false: "", true: "volumeDevices"} {
			global := filepath.Join(t.TempDir(), "plugins/kubernetes.io/fc", dir, c.global)
			root := strings.Split(global, "/plugins/")[0]
			if got := d.Global(root, block); got != global {
				t.Errorf("the global directory is %s, want %s", got, global)
			}
			must(t, scsi.Record(global, d))
			if all, err := Globals(root, block); err != nil || !slices.Equal(all, []string{global}) {
				t.Errorf("the directories are %q, %v", all, err)
			}
			if all, err := Globals(root, !block); err != nil || len(all) > 0 {
				t.Errorf("those of the other kind are %q, %v", all, err)
			}
			if got, err := Read(global); err != nil || fmt.Sprint(got) != fmt.Sprint(d) {
				t.Errorf("the record says %+v, %v; want %+v", got, err, d)
			}
		}
	}
}

// A kubelet leaves no record, and a crash may leave half of one on a filesystem that forgets.
func TestDiskWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		wwn + "-lun-12":               "kubernetes.io/fc/[" + wwn + "]:12",
		wwn + "-" + other + "-lun-12": "kubernetes.io/fc/[" + wwn + " " + other + "]:12",
		id:                            "kubernetes.io/fc/[" + id + "]",
		id + "-x":                     "kubernetes.io/fc/[" + id + " x]",
	} {
		global := filepath.Join(dir, name)
		for _, record := range []string{"", "{", "{}", "null"} {
			if record != "" {
				must(t, os.WriteFile(scsi.Beside(global), []byte(record), 0o600))
			}
			if d, err := Read(global); err != nil || d.Attached != want || d.Volume != "" {
				t.Errorf("%s with the record %q is %+v, %v", name, record, d, err)
			}
		}
	}
}

func TestBadDisks(t *testing.T) {
	for want, source := range map[string]*corev1.FCVolumeSource{
		"no fc disk information found":                                  {TargetWWNs: []string{wwn}},
		`-1 can't be the LUN`:                                           byWay(-1, wwn),
		`"../../etc" can't be a world wide name or identifier`:          byWay(0, wwn, "../../etc"),
		`"" can't be a world wide name or identifier`:                   byItself(id, ""),
		`".hidden" can't be a world wide name or identifier`:            byItself(".hidden"),
		`"volumeDevices" can't be a world wide name or identifier`:      byItself("volumeDevices"),
		"neither targetWWNs with a lun, nor wwids":                      {},
		`"a\nb" can't be a world wide name or identifier`:               byItself("a\nb"),
		"no fc disk information found: the volume has neither targetWW": {Lun: new(int32)},
	} {
		if d, err := New("pv", source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", d, err, want)
		}
	}
}

// Links to partitions, to other disks of the target, and to those of other targets are no links to the disk.
func TestDiskByItsWay(t *testing.T) {
	b := newBed(t)
	b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-11", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1-part1")
	b.disk("sdb", "by-path/pci-0000:41:00.0-fc-0x"+other+"-lun-1")
	b.disk("sdc", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1")
	b.detaches(b.attaches(byWay(1, strings.ToUpper(wwn)), "sdc"), "sdc")
	b.disk("sdd", "by-path/fc-0x"+wwn+"-lun-2")
	b.attaches(byWay(2, wwn), "sdd")
}

func TestDiskByItself(t *testing.T) {
	b := newBed(t)
	b.disk("sda", "by-id/scsi-"+id, "by-id/wwn-0x"+id)
	b.disk("sdb", "by-id/scsi-"+id+"-part1")
	b.detaches(b.attaches(byItself("none", id), "sda"), "sda")
}

// multipath is the program, which says no as often as told; the arguments of the last call are in the file flushed.
func (b *bed) multipath(refusals int) {
	b.t.Helper()
	text := "#!/bin/sh\necho \"$@\" >" + b.dir + "/flushed\n"
	for i := range refusals {
		text += fmt.Sprintf("mkdir %s/refused%d 2>/dev/null && echo 'map in use' && exit 1\n", b.dir, i)
	}
	must(b.t, os.WriteFile(filepath.Join(b.dir, "multipath"), []byte(text+"exit 0\n"), 0o755))
	b.t.Setenv("PATH", b.dir+":"+os.Getenv("PATH"))
}

// One way of a multipath device is enough to take all of them away. While the device is in use, its ways stay, and the
// next try finds it by them.
func TestMultipathDisk(t *testing.T) {
	b := newBed(t)
	b.multipath(1)
	b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1")
	b.disk("sdb")
	b.disk("sdc", "by-path/pci-0000:42:00.0-fc-0x"+other+"-lun-1")
	b.join("dm-4", "sda", "sdb")
	global := b.attaches(byWay(1, wwn), "dm-4")
	if err := b.disks.Detach(t.Context(), global); err == nil || !strings.Contains(err.Error(), "map in use") {
		t.Errorf("error %v", err)
	}
	if said := b.reads("sys/block/sda/device/delete"); said != "" {
		t.Error("a way of a device that is in use was taken away")
	}
	b.detaches(global, "sda", "sdb")
	if got := b.reads("flushed"); got != "-f "+filepath.Join(b.dir, "dev/dm-4")+"\n" {
		t.Errorf("multipath was called with %q", got)
	}
}

// udev may give the disk's own name to the multipath device.
func TestMultipathDiskByItself(t *testing.T) {
	b := newBed(t)
	b.multipath(0)
	b.disk("sda")
	b.join("dm-0", "sda")
	must(t, os.MkdirAll(filepath.Join(b.dir, "by-id"), 0o755))
	must(t, os.Symlink(filepath.Join(b.dir, "dev/dm-0"), filepath.Join(b.dir, "by-id/scsi-"+id)))
	b.detaches(b.attaches(byItself(id), "dm-0"), "sda")
}

// Of several names the first that leads to a disk counts, and a multipath device before a single way. Only that is
// taken away: another target may show another disk by that number.
func TestDiskOfSeveralNames(t *testing.T) {
	b := newBed(t)
	b.multipath(0)
	b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+other+"-lun-1")
	b.disk("sdb", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1")
	b.detaches(b.attaches(byWay(1, "0000000000000000", wwn, other), "sdb"), "sdb")
	b = newBed(t)
	b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1")
	b.disk("sdb", "by-path/pci-0000:41:00.0-fc-0x"+other+"-lun-1")
	b.join("dm-1", "sdb")
	b.multipath(0)
	b.detaches(b.attaches(byWay(1, wwn, other), "dm-1"), "sdb")
}

// A pod may name a disk that the node uses itself, such as the one it has booted from.
func TestDiskThatTheNodeUses(t *testing.T) {
	const link = "by-path/pci-0000:41:00.0-fc-0x" + wwn + "-lun-1"
	var root unix.Stat_t
	must(t, unix.Stat("/", &root))
	number := fmt.Sprintf("%d:%d\n", unix.Major(root.Dev), unix.Minor(root.Dev))
	for name, use := range map[string]func(*bed){
		"it is mounted": func(b *bed) {
			must(b.t, os.WriteFile(filepath.Join(b.dir, "sys/block/sda/dev"), []byte(number), 0o600))
		},
		"a partition is mounted": func(b *bed) {
			b.write("sys/block/sda/sda1/dev")
			must(b.t, os.WriteFile(filepath.Join(b.dir, "sys/block/sda/sda1/dev"), []byte(number), 0o600))
		},
		"a logical volume is on it": func(b *bed) {
			b.write("sys/block/sda/holders/dm-7")
			b.write("sys/block/dm-7/slaves/sda")
		},
		"a logical volume is on a partition":  func(b *bed) { b.write("sys/block/sda/sda2/holders/dm-7") },
		"a logical volume is on its multiway": func(b *bed) { b.join("dm-3", "sda"); b.write("sys/block/dm-3/holders/dm-7") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.multipath(0)
			b.disk("sda", link)
			use(b)
			d, err := New("pv", byWay(1, wwn))
			must(t, err)
			global := d.Global(b.disks.root, false)
			_, err = b.disks.Attach(t.Context(), d, global, func() {})
			must(t, err)
			b.detaches(global)
			if _, err := os.Stat(filepath.Join(b.dir, "flushed")); err == nil {
				t.Error("its multipath device was flushed")
			}
		})
	}
}

// The kernel is told to look on every host. What can't be found is named, and what was begun is taken back.
func TestDiskThatIsNotThere(t *testing.T) {
	b := newBed(t)
	d, err := New("pv", byWay(1, wwn))
	must(t, err)
	global := d.Global(b.disks.root, false)
	_, err = b.disks.Attach(t.Context(), d, global, func() {})
	want := "no fc disk found: " + b.dir + "/by-path/*-fc-0x" + wwn + "-lun-1 shows none"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	for _, host := range []string{"host1", "host7"} {
		if said := b.reads("sys/class/scsi_host/" + host + "/scan"); said != "- - -\n" {
			t.Errorf("%s was told %q", host, said)
		}
	}
	if got, err := Read(global); err != nil || got.Volume != "pv" {
		t.Errorf("the record says %+v, %v", got, err)
	}
	b.detaches(global)
}

// A disk stays that other pods have as a device, or by another volume and other names.
func TestDiskThatOtherPodsHave(t *testing.T) {
	for name, source := range map[string]*corev1.FCVolumeSource{"the same": byWay(1, wwn), "its own": byItself(id)} {
		b := newBed(t)
		b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1", "by-id/scsi-"+id)
		global := b.attaches(byWay(1, wwn), "sda")
		d, err := New("pv2", source)
		must(t, err)
		device := d.Global(b.disks.root, true)
		must(t, scsi.Record(device, d))
		must(t, b.disks.Detach(t.Context(), global))
		if got := b.reads("sys/block/sda/device/delete"); got != "" {
			t.Errorf("the disk was taken away from who has it by %s name", name)
		}
		b.detaches(device, "sda")
	}
}

// A host that can't look for disks is told of beside the disk that is missing, and doesn't matter once there is one.
func TestHostThatDoesNotLook(t *testing.T) {
	b := newBed(t)
	must(t, os.MkdirAll(filepath.Join(b.dir, "sys/class/fc_host/host9"), 0o755))
	must(t, os.MkdirAll(filepath.Join(b.dir, "sys/class/scsi_host/host9/scan"), 0o755)) // can't be written to
	d, err := New("pv", byWay(1, wwn))
	must(t, err)
	_, err = b.disks.Attach(t.Context(), d, d.Global(b.disks.root, false), func() {})
	for _, want := range []string{"no fc disk found", "host9/scan"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if said := b.reads("sys/class/scsi_host/host1/scan"); said != "" {
		t.Errorf("a host that has no fibre channel was told %q", said)
	}
	b.disk("sda", "by-path/pci-0000:41:00.0-fc-0x"+wwn+"-lun-1")
	b.attaches(byWay(1, wwn), "sda")
}
