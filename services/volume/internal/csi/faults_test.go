package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// What a driver repeats of what it was given is in no error.
func TestDriversThatTellSecrets(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "a"}}})
	b.node.answers["publish"] = []error{status.Error(codes.Internal, "mount -o pass=s3cret of ns/sec,token=t0ken failed")}
	b.mounts("mount -o pass=***,token=*** failed")
}

// A driver that is gone holds up no pod that has its volume, and the end of one that has.
func TestNoDriver(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.mounts("")
	b.drivers.Close()
	b.unmounts("not found in the list of registered CSI drivers")
	b.mounts("") // the pod goes on with what it has
	b.is(stepPublished)
}

// A registration that is made again, as by a registrar that has restarted, breaks off no call.
func TestRegisteredAgainDuringACall(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.node.hang = "publish"
	ended := make(chan error, 1)
	go func() { ended <- b.mount(t.Context()) }()
	<-b.node.entered
	b.drivers.Registered(map[string]topic.Plugin{"CSIPlugin.d": {
		Type: topic.CSIPlugin, Name: "d",
		PluginEndpoint: topic.PluginEndpoint{Endpoint: filepath.Join(b.root, "s"), Instance: "next"},
	}})
	close(b.node.goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	b.is(stepPublished)
	b.unmounts("")
	b.calls("publish", "unpublish")
}

// On a disk that is full a pod can end, which may make room.
func TestUnpublishWithoutARecord(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.mounts("")
	// Nobody can make a file of that name, as on a full disk.
	if err := os.MkdirAll(filepath.Join(b.dir(), recordName+".tmp", "in the way"), 0o750); err != nil {
		t.Fatal(err)
	}
	b.node.goes = func(*node) { _ = os.RemoveAll(filepath.Join(b.dir(), recordName+".tmp")) }
	b.unmounts("")
	b.is(stepNone)
	b.calls("publish", "unpublish")
}

// On a disk that is full what a volume holds is kept up to date: its record stays what it is.
func TestRepublishWithoutARecord(t *testing.T) {
	yes := true
	b := newBed(t, storagev1.CSIDriverSpec{RequiresRepublish: &yes})
	b.mounts("")
	// Nobody can make a file of that name, as on a full disk.
	if err := os.MkdirAll(filepath.Join(b.dir(), recordName+".tmp", "in the way"), 0o750); err != nil {
		t.Fatal(err)
	}
	b.mounts("")
	b.is(stepPublished)
	b.calls("publish", "publish")
}

// A process that was killed while it wrote the first record leaves an unfinished one.
func TestUnfinishedRecord(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	if err := errors.Join(os.MkdirAll(b.dir(), 0o750),
		os.WriteFile(filepath.Join(b.dir(), recordName+".tmp"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.unmounts("")
	b.is(stepNone)
}

// A mount that somebody has unmounted is made again, though the machine has not booted: the node may be a container.
func TestMountsThatAreGone(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.node.mounts = true
	b.mounts("")
	b.restart()
	b.mounts("")
	if err := unix.Unmount(filepath.Join(b.dir(), "mount"), 0); err != nil {
		t.Fatal(err)
	}
	b.is(stepUncertain)
	b.mounts("")
	b.is(stepPublished)
	b.unmounts("")
	b.is(stepNone)
	b.calls("publish", "publish", "unpublish")
}

// An inline volume may have the name of a persistent one of the same pod.
func TestTwoVolumesOfOneName(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.mounts("")
	other := `{"driverName":"d","volumeHandle":"another","volumeLifecycleMode":"Persistent"}`
	if err := os.WriteFile(filepath.Join(b.dir(), recordName), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mounts(`has another volume, "another" of driver d: two volumes of a pod can't have the name "v"`)
	b.calls("publish")
}

// A damaged record of a volume that the pod is to have is replaced.
func TestDamagedRecordIsReplaced(t *testing.T) {
	b := newBed(t, storagev1.CSIDriverSpec{})
	b.mounts("")
	if err := os.WriteFile(filepath.Join(b.dir(), recordName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.mounts("")
	b.is(stepPublished)
	b.calls("publish", "publish")
}

// Until the CSIDriver objects are known a volume serves as it is, and is looked at again.
func TestRepublishAfterARestart(t *testing.T) {
	yes := true
	b := newBed(t, storagev1.CSIDriverSpec{RequiresRepublish: &yes})
	b.mounts("")
	b.unread()
	result, err := b.mountResult(t.Context())
	if err != nil || result.RefreshAt.IsZero() {
		t.Errorf("%+v, %v", result, err)
	}
	if place := b.volumes.InPlace(result.HostPath); !place.There || place.Due || place.LookAgain.IsZero() {
		t.Errorf("%+v", place)
	}
	b.drivers.Synced()
	if place := b.volumes.InPlace(result.HostPath); !place.There || !place.Due {
		t.Errorf("%+v", place)
	}
	b.mounts("")
	b.calls("publish", "publish")
}

// A driver's name becomes part of paths: one that leads elsewhere is refused, and nothing is made of it.
func TestNamesThatLeadElsewhere(t *testing.T) {
	b := newBed(t, unattached())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	for _, name := range []string{"", "..", "../../etc", "a/b", "a\nb", strings.Repeat("a", 64)} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: name, VolumeHandle: "h"}
		_, err := b.volumes.MountPersistent(t.Context(), plugin.Request{Pod: pod, Calls: silent{}}, pv, false)
		if err == nil || !strings.Contains(err.Error(), `persistent volume "pv" can't be mounted: its CSI driver is`) {
			t.Errorf("%q behind a claim: %v", name, err)
		}
		v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name}}}
		_, err = b.volumes.Mount(t.Context(), plugin.Request{Pod: pod, Volume: v, Dir: b.dir(), Calls: silent{}})
		if err == nil || !strings.Contains(err.Error(), "can't be the name of a CSI driver") {
			t.Errorf("%q in the pod's spec: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(b.root); err != nil || len(entries) != 1 {
		t.Errorf("there is more than the socket: %v, %v", entries, err)
	}
	b.calls()
}
