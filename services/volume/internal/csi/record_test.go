package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
