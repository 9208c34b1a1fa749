package csi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

const attachedName = "kubernetes.io/csi/d^h/1"

// attached is the CSIDriver of volumes that must be attached.
func attached() storagev1.CSIDriverSpec {
	spec := unattached()
	spec.AttachRequired = nil
	return spec
}

// inUse are the volumes that the Node's status is to name.
func (b *bed) inUse(want ...string) {
	b.t.Helper()
	if got, err := inUseNow(b.volumes); err != nil || !slices.Equal(got, want) {
		b.t.Errorf("in use are %q, %v; want %q", got, err, want)
	}
}

// tells the node agent of the Node's status.
func (b *bed) tells(used, ready bool) {
	var s corev1.NodeStatus
	if used {
		s.VolumesInUse = []corev1.UniqueVolumeName{attachedName}
	}
	if ready {
		s.VolumesAttached = []corev1.AttachedVolume{{Name: attachedName}}
	}
	b.volumes.Attached.SetNode(s)
}

// The volume is in use from the moment a pod wants it until it is unstaged, and nothing is done with it before the API
// server knows that, the controller has attached it, and the attacher has said so.
func TestAttach(t *testing.T) {
	b := newBed(t, attached())
	b.inUse()
	b.claims("u1", "volume "+attachedName+" is not in the Node's status.volumesInUse yet")
	b.inUse(attachedName)
	b.tells(false, true) // attached for an earlier use: the controller may be about to detach it
	b.claims("u1", "not in the Node's status.volumesInUse yet")
	b.tells(true, false)
	b.claims("u1", "the attach-detach controller has not made volume attachment csi-"+hexSum("h/1dn1")+
		" of volume h/1 yet")
	b.api.attachment = &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + hexSum("h/1dn1")}}
	b.claims("u1", "volume h/1 is not attached for volume attachment csi-")
	b.api.attachment.Status.AttachError = &storagev1.VolumeError{Message: "no\nroom"}
	b.claims("u1", "MountVolume.WaitForAttach failed for volume \"pv\" : no room")
	b.api.attachment.Status = storagev1.VolumeAttachmentStatus{
		Attached: true, AttachmentMetadata: map[string]string{"device": "sdb"},
	}
	// The attacher has done its part: it is the controller that is waited for.
	b.claims("u1", "volume "+attachedName+" is not in the Node's status.volumesAttached yet")
	now := metav1.Now()
	b.tells(true, true)
	b.api.attachment.DeletionTimestamp = &now
	b.claims("u1", "volume attachment is being deleted")
	b.api.attachment.DeletionTimestamp = nil
	b.api.err = errors.New("away")
	b.claims("u1", "volume h/1 has GET error for volume attachment csi-"+hexSum("h/1dn1")+": away")
	b.api.err = nil
	b.calls()
	b.claims("u1", "")
	if got := b.node.last.GetPublishContext(); got["device"] != "sdb" {
		t.Errorf("published with %v", got)
	}
	b.restart()
	b.inUse(attachedName)
	b.gives("u1")
	b.inUse(attachedName)
	b.tidies(4)
	b.inUse()
	b.calls("stage", "publish", "unpublish", "unstage")
}

// What is waited for is no failure at first, what goes wrong is.
func TestWaitingIsNoFailure(t *testing.T) {
	b := newBed(t, attached())
	onItsWay := func(want bool) {
		t.Helper()
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h/1"}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
		_, err := b.volumes.MountPersistent(t.Context(), plugin.Request{Pod: pod, Calls: silent{}}, pv, false)
		var failure *plugin.Failure
		if !errors.As(err, &failure) || failure.OnItsWay != want {
			t.Errorf("got %v; on its way: want %v", err, want)
		}
	}
	onItsWay(true)
	b.drivers.Close()
	onItsWay(false)
}

// A pod that ends while its volume is being attached leaves nothing: the controller detaches it again.
func TestEndWhileAttaching(t *testing.T) {
	b := newBed(t, attached())
	b.claims("u1", "not in the Node's status.volumesInUse yet")
	b.restart()
	b.inUse(attachedName)
	b.drivers.Close()
	b.gives("u1")
	b.inUse()
	b.calls()
}

// The directory of a pod that has gone may be removed by others, as after a reboot, when no driver is there to be
// asked. The volume isn't held for it: another node waits for it.
func TestInUseForADirectoryThatIsGone(t *testing.T) {
	b := newBed(t, attached())
	b.claims("u1", "not in the Node's status.volumesInUse yet")
	b.inUse(attachedName)
	if err := os.RemoveAll(filepath.Join(b.root, "pods/u1")); err != nil {
		t.Fatal(err)
	}
	b.inUse()
}

// Volumes of drivers that need no attachment are in no list.
func TestInUseWithoutAttachment(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.inUse()
	b.unread()
	if _, err := inUseNow(b.volumes); !errors.Is(err, driver.ErrUnread) {
		t.Errorf("got %v, though nobody knows which drivers attach", err)
	}
}

// toldInUse is the topic csi.volumes.
type toldInUse chan []string

func (c toldInUse) Set(_ string, v topic.VolumesInUse) error {
	c <- v.Names
	return nil
}

// become waits until these volumes are told of.
func (c toldInUse) become(t *testing.T, want ...string) {
	t.Helper()
	select {
	case got := <-c:
		if !slices.Equal(got, want) {
			t.Errorf("in use are %q, want %q", got, want)
		}
	case <-time.After(lookAgain / 2):
		t.Errorf("nothing is told, want %q", want)
	}
}

// Whether the volumes of a driver must be attached counts as soon as the cluster says so.
func TestInUseFollowsTheDriver(t *testing.T) {
	b := newBed(t, attached())
	b.claims("u1", "not in the Node's status.volumesInUse yet")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	told := make(toldInUse, 10)
	running.Go(func() { b.volumes.Run(ctx) })
	running.Go(func() { PublishInUse(ctx, b.volumes, told) })
	told.become(t, attachedName)
	b.drivers.SetObject("d", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: unattached()})
	told.become(t)
	b.drivers.SetObject("d", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: attached()})
	told.become(t, attachedName)
	cancel()
	running.Wait()
}

// infos is the topic csi.driver.
// words are what a health has said.
type words []string

func (w *words) Set(state topic.HealthState, message string) {
	*w = append(*w, string(state)+" "+message)
}

type infos struct {
	mu   sync.Mutex
	said map[string]topic.CSINodeInfo
}

func (i *infos) Set(key string, info topic.CSINodeInfo) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.said[key] = info
	return nil
}

func (i *infos) Delete(key string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.said, key)
	return nil
}

// become waits until that is what is published.
func (i *infos) become(t *testing.T, want map[string]topic.CSINodeInfo) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		i.mu.Lock()
		got := maps.Clone(i.said)
		i.mu.Unlock()
		if reflect.DeepEqual(got, want) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("published is %v; want %v", got, want)
		}
	}
}

// What a driver says of the node is published while it is registered, however late it answers.
func TestReport(t *testing.T) {
	b := newBed(t, attached())
	b.node.mu.Lock()
	b.node.answers["info"] = []error{status.Error(codes.Unavailable, "starting")}
	b.node.mu.Unlock()
	// An earlier process has published a driver that may still come.
	said := map[string]topic.CSINodeInfo{"other": {Name: "other", NodeID: "1"}}
	out, published := &infos{said: maps.Clone(said)}, maps.Clone(said)
	ctx, cancel := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	var health words
	reporting.Go(func() {
		b.drivers.Report(ctx, driver.ReportPorts{
			Out: out, Published: published, Health: &health, Log: slog.New(slog.DiscardHandler),
		})
	})
	said["d"] = topic.CSINodeInfo{Name: "d", NodeID: "id", Topology: map[string]string{"zone": "a"}, MaxVolumes: 7}
	out.become(t, said)
	b.drivers.Close()
	delete(said, "d")
	out.become(t, said)
	cancel()
	reporting.Wait()
	if len(health) != 2 || !strings.Contains(health[0], "starting") || health[1] != "healthy " {
		t.Errorf("the daemon's health was %q, want why the driver doesn't answer, and then its end", health)
	}
}
