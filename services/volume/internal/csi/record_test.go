package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	r := record{keyDriver: "d", keyHandle: "h", keySpecName: "v"}
	if err := r.write(dir, stepPublishing, "boot1"); err != nil {
		t.Fatal(err)
	}
	read, err := readRecord(dir)
	if err != nil || read.step("boot1") != stepPublishing || read.step("boot2") != stepUncertain {
		t.Errorf("%v, %v", read, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	want := `{"driverName":"d","kubelot.dev/boot":"boot1","kubelot.dev/step":"publishing","specVolID":"v",` +
		`"volumeHandle":"h"}` + "\n"
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	if err := r.write(dir, stepNone, "boot1"); err != nil {
		t.Fatal(err)
	}
	if read, err = readRecord(dir); read != nil || err != nil || read.step("boot1") != stepNone {
		t.Errorf("%v, %v", read, err)
	}
}

func TestDamagedRecords(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "half": `{"driverName":"d",`, "another": `["a"]`, "numbers": `{"driverName":1}`,
		"no handle": `{"driverName":"d"}`, "huge": `{"driverName":"` + strings.Repeat("x", maxRecord) + `"}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, recordName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := readRecord(dir); !errors.Is(err, errDamaged) || r != nil || len(err.Error()) > 400 {
			t.Errorf("%s: %v, %.300v", name, r, err)
		}
	}
	for name, put := range strange(t) {
		dir := t.TempDir()
		put(filepath.Join(dir, recordName))
		if r, err := readRecord(dir); !errors.Is(err, errDamaged) || r != nil {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// strange is what may be at a record's path instead of a file.
func strange(t *testing.T) map[string]func(path string) {
	put := func(how func(path string) error) func(string) {
		return func(path string) {
			if err := how(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(string){
		"directory": put(func(path string) error { return os.Mkdir(path, 0o750) }),
		"link":      put(func(path string) error { return os.Symlink("/etc/hostname", path) }),
		"pipe":      put(func(path string) error { return unix.Mkfifo(path, 0o600) }),
		"socket":    put(func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }),
	}
}

// What is no record holds up no volume but its own, and that is given back as one of a damaged record is.
func TestStrangeRecordHoldsUpNobody(t *testing.T) {
	for name, put := range strange(t) {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, unattached())
			b.node.mounts = true
			other := filepath.Join(b.root, "pods/u9/volumes/kubernetes.io~csi/other")
			if err := os.MkdirAll(filepath.Join(other, mountName), 0o750); err != nil {
				t.Fatal(err)
			}
			put(filepath.Join(other, recordName))
			b.claims("u1", "")
			b.gives("u1")
			// Of what is mounted there no record says which volume it is.
			point, staged := filepath.Join(other, mountName), filepath.Join(b.stageDir(), "globalmount")
			if err := unix.Mount(staged, point, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			err := b.volumes.unstageIfUnused(t.Context(), b.stageDir())
			if err == nil || !strings.Contains(err.Error(), "in use at "+other) {
				t.Errorf("unstaging a volume in use: %v", err)
			}
			if err := unix.Unmount(point, 0); err != nil {
				t.Fatal(err)
			}
			b.volumes.unstageIfUnusedOrFail(t, b.stageDir())
			if err := b.volumes.Unmount(t.Context(), other); err != nil || exists(other) {
				t.Errorf("the strange volume is left: %v", err)
			}
			b.calls("stage", "publish", "unpublish", "unstage")
		})
	}
}

func TestAKubeletsRecordIsUncertain(t *testing.T) {
	dir := t.TempDir()
	content := `{"attachmentID":"csi-1","driverName":"d","nodeName":"n","specVolID":"v","volumeHandle":"h",` +
		`"volumeLifecycleMode":"Ephemeral"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := readRecord(dir); err != nil || r.step("boot") != stepUncertain {
		t.Errorf("%v, %v", r, err)
	}
}

// What a kubelet has noted besides stays.
func TestKeysOfOthersAreKept(t *testing.T) {
	d := disk{root: t.TempDir(), boot: "b"}
	dir := filepath.Join(d.root, "v")
	r := record{keyDriver: "d", keyHandle: "h"}
	old := record{keyDriver: "d", keyHandle: "h", "seLinuxMountContext": "label", keyMounted: "true"}
	if err := errors.Join(
		os.Mkdir(dir, 0o750), old.write(dir, stepPublished, "b"), d.note(dir, r, stepUnpublishing),
	); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(dir)
	if err != nil || got["seLinuxMountContext"] != "label" || got[keyMounted] != "" || got.step("b") != stepUnpublishing {
		t.Errorf("%v, %v", got, err)
	}
	other := record{keyDriver: "d", keyHandle: "another"}
	if err := d.note(dir, other, stepWanted); err != nil {
		t.Fatal(err)
	}
	if got, err := readRecord(dir); err != nil || got["seLinuxMountContext"] != "" {
		t.Errorf("%v, %v", got, err)
	}
}
