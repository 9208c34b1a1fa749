package crash

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/tools"
)

// csiAttachRounds is csiRounds for attached volumes. The double of the number of victims has all combinations, with
// filesystems and with devices.
const csiAttachRounds = 7

// Whoever is killed while a volume is attached and while it is detached, with the real attach-detach controller and
// attacher: it is attached before it is staged, detached when it is nowhere in use, and nothing of it is left. The
// judge of the driver's calls looks at their order.
func TestCSIKilledWhileAttaching(t *testing.T) {
	ns := bed.Namespace(t)
	driver := bed.CSIDriver(t, "attachkilled.csi.test", storagev1.CSIDriverSpec{})
	driver.Start()
	driver.Sidecars(tools.Attacher)
	for i := range csiRoundsOr(t, csiAttachRounds) {
		r := &csiRound{
			t: t, ns: ns, driver: driver, name: fmt.Sprintf("a%d", i), block: (i+i/len(csiVictims))%2 == 1,
		}
		comes, goes := csiAttaches.kill(i), csiDetaches.kill(i)
		t.Logf("round %d: %s, %s, of a device: %t", i, comes, goes, r.block)
		r.comes(comes)
		r.goes(goes)
		kit.Eventually(t, "the volume is detached", r.detached)
		if t.Failed() {
			return
		}
	}
}

// detached is an error while a volume of the driver is attached.
func (r *csiRound) detached() error {
	list, err := bed.Client.StorageV1().VolumeAttachments().List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, va := range list.Items {
		if va.Spec.Attacher == r.driver.Name {
			err = errors.Join(err, fmt.Errorf("%s is there: %+v", va.Name, va.Status))
		}
	}
	return err
}

// A driver is registered, and in the CSINode, within a second of its socket, alone and among a thousand sockets that
// don't answer. The machine may be busy, so that the fastest of some tries counts, of more while all are slow: what
// waits for a period or for others is never fast, as each try begins right after the end of the one before.
func TestCSIRegistersAtOnce(t *testing.T) {
	driver := bed.CSIDriver(t, "atonce.csi.test", storagev1.CSIDriverSpec{}, "--no-attach")
	registrations := 0
	// told is from the start of the driver's process, usable from its socket.
	fastest := func() (told, usable time.Duration) {
		told, usable = kit.Patience, kit.Patience
		for try := 0; try < 5 || max(told, usable) > time.Second && try < 30; try++ {
			began := time.Now()
			driver.Start()
			driver.InCSINode(true)
			usable = min(usable, time.Since(driver.Bound()))
			registrations++
			told = min(told, driver.Registered(registrations, began))
			driver.Withdraw()
			driver.InCSINode(false)
		}
		return told, usable
	}
	told, usable := fastest()
	t.Logf("registered %s after the driver's start, in the CSINode %s after its socket", told, usable)
	registry := filepath.Join(bed.Node.RootDir, "plugins_registry")
	for i := range 1000 {
		path := filepath.Join(registry, fmt.Sprintf("deaf%d.sock", i))
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
	toldAmong, usableAmong := fastest()
	t.Logf("among 1,000 sockets %s and %s", toldAmong, usableAmong)
	if max(told, usable, toldAmong, usableAmong) > time.Second {
		t.Error("that isn't within a second")
	}
}
