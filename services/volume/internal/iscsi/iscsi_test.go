package iscsi

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/scsi"
)

const (
	iqn    = "iqn.2026-01.dev.kubelot:disks"
	portal = "10.0.0.1:3260"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bed is a node with the iscsiadm of testdata, and targets that have the LUNs 0 to 2.
type bed struct {
	t     *testing.T
	dir   string
	disks *Disks
}

func newBed(t *testing.T) *bed {
	dir := t.TempDir()
	program, err := filepath.Abs("testdata")
	must(t, err)
	t.Setenv("PATH", program+":"+os.Getenv("PATH"))
	t.Setenv("FAKE", dir)
	b := &bed{t: t, dir: dir}
	for _, lun := range []string{"0", "1", "2"} {
		b.write("luns/"+lun, "disk")
	}
	b.disks = NewDisks(filepath.Join(dir, "root"), scsi.Places{
		Sys: filepath.Join(dir, "sys"), Dev: "/dev", ByPath: filepath.Join(dir, "by-path"),
	})
	b.disks.deviceWait, b.disks.multipathWait = 0, 0
	return b
}

func (b *bed) write(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	must(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(b.t, os.WriteFile(path, []byte(text), 0o600))
}

// calls are those of iscsiadm since the last time.
func (b *bed) calls() []string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return nil
	}
	must(b.t, os.Remove(filepath.Join(b.dir, "log")))
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// want compares the calls since the last time.
func (b *bed) want(what string, want ...string) {
	b.t.Helper()
	if got := b.calls(); !slices.Equal(got, want) {
		b.t.Errorf("%s: got the calls\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// prefixes are how the calls by way of an interface begin.
func prefixes(iface string) (discovery, node string) {
	return "-m discoverydb -t sendtargets -p " + portal + " -I " + iface + " ",
		"-m node -p " + portal + " -T " + iqn + " -I " + iface + " "
}

func source(lun int32, portals ...string) *corev1.ISCSIPersistentVolumeSource {
	return &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", Portals: portals, IQN: iqn, Lun: lun}
}

func (b *bed) disk(volume string, s *corev1.ISCSIPersistentVolumeSource) (Disk, string) {
	b.t.Helper()
	d, err := New(volume, s)
	must(b.t, err)
	return d, d.Global(b.disks.root, false)
}

func (b *bed) attach(volume string, s *corev1.ISCSIPersistentVolumeSource) (device, global string) {
	b.t.Helper()
	d, global := b.disk(volume, s)
	device, err := b.disks.Attach(b.t.Context(), d, global, nil, func() {})
	must(b.t, err)
	return device, global
}

func (b *bed) detach(global string) {
	b.t.Helper()
	must(b.t, b.disks.Detach(b.t.Context(), global))
	if _, err := os.Lstat(global); err == nil {
		b.t.Errorf("%s is left", global)
	}
}

func TestCallsOfADisk(t *testing.T) {
	b := newBed(t)
	device, global := b.attach("pv", source(1))
	if want := filepath.Join(b.dir, "by-path/ip-10.0.0.1:3260-iscsi-"+iqn+"-lun-1"); device != want {
		t.Errorf("device %s, want %s", device, want)
	}
	want := filepath.Join(b.disks.root, "plugins/kubernetes.io/iscsi/iface-default", portal+"-"+iqn+"-lun-1")
	if global != want {
		t.Errorf("global directory %s, want %s", global, want)
	}
	discovery, node := prefixes("default")
	b.want("attach",
		"-m iface -I default -o show", discovery+"-o new", discovery+"--discover",
		node+"-o update -n node.session.scan -v manual", node+"--login", node+"-o update -n node.startup -v manual")
	if scan := line(b.dir, "sys/class/scsi_host/host2/scan"); scan != "0 0 1" {
		t.Errorf("looked for %q, want LUN 1 alone", scan)
	}
	// Again, as after a restart.
	if again, _ := b.attach("pv", source(1)); again != device {
		t.Errorf("another device: %s", again)
	}
	b.want("again", "-m iface -I default -o show")
	b.detach(global)
	b.want("detach", node+"--logout", node+"-o delete")
	if line(b.dir, "sys/block/sd2-1/device/delete") != "1" || line(b.dir, "sys/block/sd2-0/device/delete") != "" {
		t.Error("not LUN 1 alone was taken away")
	}
}

func TestCHAPAndInitiatorName(t *testing.T) {
	b := newBed(t)
	s := source(0)
	name := "iqn.2026-01.dev.kubelot:me"
	s.DiscoveryCHAPAuth, s.SessionCHAPAuth, s.InitiatorName = true, true, &name
	d, global := b.disk("pv", s)
	secret := map[string]string{
		"discovery.sendtargets.auth.username": "finder", "discovery.sendtargets.auth.password": "find3r",
		"node.session.auth.username": "user", "node.session.auth.password": "s3cret", "other": "x",
	}
	_, err := b.disks.Attach(t.Context(), d, global, secret, func() {})
	must(t, err)
	iface := portal + ":pv"
	discovery, node := prefixes(iface)
	show := "-m iface -I default -o show"
	b.want("attach", show, show, "-m iface -I "+iface+" -o new",
		"-m iface -I "+iface+" -o update -n iface.initiatorname -v "+name,
		"-m iface -I "+iface+" -o update -n iface.transport_name -v tcp",
		discovery+"-o new",
		discovery+"-o update -n discovery.sendtargets.auth.authmethod -v CHAP",
		discovery+"-o update -n discovery.sendtargets.auth.username -v finder",
		discovery+"-o update -n discovery.sendtargets.auth.password -v find3r",
		discovery+"--discover",
		node+"-o update -n node.session.scan -v manual",
		node+"-o update -n node.session.auth.authmethod -v CHAP",
		node+"-o update -n node.session.auth.username -v user",
		node+"-o update -n node.session.auth.password -v s3cret",
		node+"--login", node+"-o update -n node.startup -v manual")
	data, err := os.ReadFile(filepath.Join(global, "iscsi.json"))
	must(t, err)
	if strings.Contains(string(data), "s3cret") {
		t.Errorf("the record has the password: %s", data)
	}
	b.detach(global)
	b.want("detach", node+"--logout", node+"-o delete", "-m iface -I "+iface+" -o delete")
}

func TestFailuresSayWhyAndTellNoSecret(t *testing.T) {
	b := newBed(t)
	s := source(0)
	s.SessionCHAPAuth = true
	d, global := b.disk("pv", s)
	secret := map[string]string{"node.session.auth.password": "s3cret"}
	for pattern, want := range map[string]string{
		"24 --login":               "iscsi: failed to attach disk: Error: iscsiadm -m node",
		"4 --discover$":            "iscsi: failed to sendtargets to portal 10.0.0.1:3260",
		"6 auth.password":          "iscsi: failed to update iscsi node to portal 10.0.0.1:3260",
		"20 iface -I default -o s": "iscsi: could not read iface default",
	} {
		b.write("fail", pattern+"\n")
		_, err := b.disks.Attach(t.Context(), d, global, secret, func() {})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") ||
			!strings.Contains(err.Error(), "iscsiadm: refused") {
			t.Errorf("%s: error %v, want %q", pattern, err, want)
		}
	}
	// What was only tried leaves nothing behind.
	b.detach(global)
}

func TestNodeWithoutTheProgram(t *testing.T) {
	b := newBed(t)
	t.Setenv("PATH", t.TempDir())
	d, global := b.disk("pv", source(0))
	if _, err := b.disks.Attach(t.Context(), d, global, nil, func() {}); !errors.Is(err, errNoProgram) {
		t.Errorf("error %v", err)
	}
	b.detach(global)
}

func TestSessionEndsAfterItsLastDisk(t *testing.T) {
	b := newBed(t)
	_, first := b.attach("a", source(0))
	_, second := b.attach("b", source(1))
	b.calls()
	b.detach(first)
	b.want("the first", []string{}...)
	b.detach(second)
	if calls := b.calls(); len(calls) != 2 || !strings.HasSuffix(calls[0], "--logout") {
		t.Errorf("the second: %q", calls)
	}
}

// A disk's second portal may be another disk's first.
func TestPortalThatAnotherDiskNeedsStays(t *testing.T) {
	b := newBed(t)
	_, both := b.attach("a", source(0, "10.0.0.2"))
	other := source(1)
	other.TargetPortal = "10.0.0.2"
	_, one := b.attach("b", other)
	b.calls()
	b.detach(both)
	calls := strings.Join(b.calls(), "\n")
	if strings.Contains(calls, "10.0.0.2") || !strings.Contains(calls, "10.0.0.1") {
		t.Errorf("calls:\n%s", calls)
	}
	b.detach(one)
	if left, err := b.disks.sys.sessions(iqn); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestPathsOfSeveralPortals(t *testing.T) {
	b := newBed(t)
	s := source(0, "10.0.0.2", "[fd00::3]:3261")
	b.write("fail", "8 -p 10.0.0.2:3260 .*--login\n")
	must(t, os.MkdirAll(filepath.Join(b.dir, "sys/block/dm-7/slaves/0"), 0o755)) // the disk is luns/0
	b.write("sys/block/dm-7/dm/uuid", "mpath-3600508b400105e21\n")
	device, global := b.attach("pv", s)
	if device != "/dev/dm-7" {
		t.Errorf("device %s, want that of multipath", device)
	}
	tries := 0
	for _, call := range b.calls() {
		if strings.HasSuffix(call, "--login") {
			tries++
		}
	}
	if tries != 4 {
		t.Errorf("%d logins, want 2 that succeed and 2 of the portal that fails", tries)
	}
	must(t, os.Remove(filepath.Join(b.dir, "fail")))
	b.detach(global)
	if left, err := b.disks.sys.sessions(iqn); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOnePathIsEnoughInTheEnd(t *testing.T) {
	b := newBed(t)
	b.write("fail", "8 -p 10.0.0.2:3260 .*--login\n")
	device, _ := b.attach("pv", source(0, "10.0.0.2"))
	tries := 0
	for _, call := range b.calls() {
		if strings.HasSuffix(call, "--login") {
			tries++
		}
	}
	if tries != 1+mostTries || !strings.Contains(device, "10.0.0.1") {
		t.Errorf("%d logins, device %s", tries, device)
	}
}

func TestDiskThatTheTargetDoesNotHave(t *testing.T) {
	b := newBed(t)
	d, global := b.disk("pv", source(9))
	_, err := b.disks.Attach(t.Context(), d, global, nil, func() {})
	if err == nil || !strings.Contains(err.Error(), "Timed out waiting for device at path") ||
		!strings.Contains(err.Error(), "-lun-9") {
		t.Errorf("error %v", err)
	}
	b.detach(global)
	if left, err := b.disks.sys.sessions(iqn); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestTargetThatHangsHoldsUpItsOwnDisks(t *testing.T) {
	b := newBed(t)
	b.write("hang", "iqn.*:hangs .*--login")
	s := source(0)
	s.IQN = "iqn.2026-01.dev.kubelot:hangs"
	d, global := b.disk("hangs", s)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the pod has terminated")
	ended := make(chan error)
	go func() {
		_, err := b.disks.Attach(ctx, d, global, nil, func() {})
		ended <- err
	}()
	for len(b.logins()) == 0 {
		time.Sleep(time.Millisecond)
	}
	b.attach("other", source(1))
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	b.detach(global)
}

// logins are the calls that log in, so far.
func (b *bed) logins() (logins []string) {
	data, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	for call := range strings.Lines(string(data)) {
		if strings.Contains(call, "--login") {
			logins = append(logins, call)
		}
	}
	return logins
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	for _, change := range []func(*corev1.ISCSIPersistentVolumeSource){
		func(s *corev1.ISCSIPersistentVolumeSource) { s.IQN = "iqn.2026-01.dev.kubelot:/../../../../etc" },
		func(s *corev1.ISCSIPersistentVolumeSource) { s.TargetPortal = "../x" },
		func(s *corev1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "a/b" },
		func(s *corev1.ISCSIPersistentVolumeSource) { s.IQN = "" },
		func(s *corev1.ISCSIPersistentVolumeSource) { s.Lun = -1 },
	} {
		s := source(0)
		change(s)
		if d, err := New("pv", s); err == nil {
			t.Errorf("%+v is a disk: %+v", s, d)
		}
	}
}

// The kubelet's record is read, and one that can't be read is made up for by the directory's name.
func TestRecords(t *testing.T) {
	root := t.TempDir()
	d, err := New("pv", source(3, "10.0.0.2:3261"))
	must(t, err)
	global := d.Global(root, true)
	must(t, os.MkdirAll(global, 0o750))
	byName, err := Read(global)
	must(t, err)
	if byName.Portals[0] != portal || byName.Iqn != iqn || byName.Lun != "3" || byName.Iface != "default" ||
		byName.cloned() {
		t.Errorf("by its name it is %+v", byName)
	}
	kubelets := `{"VolName":"pv","Portals":["10.0.0.1:3260","10.0.0.2:3261"],"Iqn":"` + iqn + `",` +
		`"Lun":"3","InitIface":"default","Iface":"default","InitiatorName":"","MetricsProvider":null}` + "\n"
	must(t, os.WriteFile(filepath.Join(global, "iscsi.json"), []byte(kubelets), 0o600))
	read, err := Read(global)
	must(t, err)
	if len(read.Portals) != 2 || read.VolName != "pv" {
		t.Errorf("the kubelet's is %+v", read)
	}
	must(t, d.write(global))
	var ours map[string]any
	data, err := os.ReadFile(filepath.Join(global, "iscsi.json"))
	must(t, errors.Join(err, json.Unmarshal(data, &ours)))
	for _, key := range []string{"VolName", "Portals", "Iqn", "Lun", "InitIface", "Iface", "InitiatorName"} {
		if _, has := ours[key]; !has {
			t.Errorf("our record lacks %s: %s", key, data)
		}
	}
	if d.Attached != "kubernetes.io/iscsi/10.0.0.1:"+iqn+":3" {
		t.Errorf("in the Node's status it is %s", d.Attached)
	}
	if all, err := Globals(root, true); err != nil || !slices.Equal(all, []string{global}) {
		t.Errorf("the directories are %q, %v", all, err)
	}
	must(t, os.Remove(filepath.Join(global, "iscsi.json")))
	if hidden, err := Read(global); err != nil || hidden.Attached != d.Attached || len(hidden.Portals) != 2 {
		t.Errorf("while it is mounted it is %+v, %v", hidden, err)
	}
	if all, err := Globals(root, false); err != nil || len(all) > 0 {
		t.Errorf("those of mounts are %q, %v", all, err)
	}
	must(t, os.WriteFile(filepath.Join(global, "somebody's"), nil, 0o600))
	if err := scsi.Forget(global, recordName); err == nil {
		t.Error("what is in the directory was removed")
	}
}
