package crash

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/tools"
)

// Whoever is killed while a volume is attached or detached, with the real attach-detach controller and attacher: it is
// attached before it is staged, detached when it is nowhere in use, and nothing of it is left. The judge of the
// driver's calls looks at their order.
func TestCSIKilledWhileAttaching(t *testing.T) {
	ns := bed.Namespace(t)
	driver := bed.CSIDriver(t, "attachkilled.csi.test", storagev1.CSIDriverSpec{})
	driver.Start()
	driver.Sidecars(tools.Attacher)
	round := 0
	for _, method := range []string{"ControllerPublishVolume", "ControllerUnpublishVolume"} {
		for _, victim := range csiVictims {
			t.Logf("round %d: %s during %s", round, victim, method)
			r := csiRound{t: t, ns: ns, driver: driver, name: fmt.Sprintf("a%d", round)}
			r.attach(csiKill{victim, method})
			if t.Failed() {
				return
			}
			round++
		}
	}
}

// attach is run for a volume that is attached.
func (r *csiRound) attach(k csiKill) {
	handle := r.driver.Provision(r.ns.Name + "-" + r.name)
	r.pv = r.ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: r.driver.Name, VolumeHandle: handle,
	}}, r.ns.For(r.name, corev1.PersistentVolumeFilesystem))
	strike := func() {}
	arm := func(method string) {
		if strike = func() {}; method == k.method {
			strike = r.arm(k)
		}
	}
	arm("ControllerPublishVolume")
	r.ns.Apply(r.ns.Claim(r.name, "") + csiPodOf(r.name, "volumeMounts: [{name: data, mountPath: /data}]"))
	strike()
	p := r.ns.Running(r.name)
	r.ns.Equal(p, "app", "printf precious > /data/file && cat /data/file", "precious")
	r.once(string(p.UID))
	arm("ControllerUnpublishVolume")
	r.ns.Delete(r.name, -1)
	strike()
	r.ns.Gone(p)
	kit.Eventually(r.t, "nothing is left of the volume", func() error { return r.gone(string(p.UID), handle) })
	kit.Eventually(r.t, "the volume is detached", func() error {
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
	})
}

// A driver is registered within a second of its socket, alone and among a thousand sockets that don't answer. The
// machine may be busy, so that the fastest of some tries counts, of more while all are slow: what waits for a period or
// for others is never fast, as each try begins right after the registration before.
func TestCSIRegistersAtOnce(t *testing.T) {
	driver := bed.CSIDriver(t, "atonce.csi.test", storagev1.CSIDriverSpec{}, "--no-attach")
	registrations := 0
	fastest := func() time.Duration {
		best := kit.Patience
		for try := 0; try < 5 || best > time.Second && try < 30; try++ {
			began := time.Now()
			driver.Start()
			registrations++
			best = min(best, driver.Registered(registrations, began))
			driver.Kill()
		}
		return best
	}
	alone := fastest()
	registry := filepath.Join(bed.Node.RootDir, "plugins_registry")
	for i := range 1000 {
		path := filepath.Join(registry, fmt.Sprintf("deaf%d.sock", i))
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
	among := fastest()
	t.Logf("registered %s after the start of the driver, and %s among 1,000 sockets", alone, among)
	if alone > time.Second || among > time.Second {
		t.Error("that isn't within a second")
	}
	// It is usable: the node has it.
	driver.Start()
	kit.Eventually(t, "the driver in the CSINode", func() error {
		node, err := bed.Client.StorageV1().CSINodes().Get(context.Background(), kit.NodeName, metav1.GetOptions{})
		for i := range node.Spec.Drivers {
			if node.Spec.Drivers[i].Name == driver.Name {
				return nil
			}
		}
		return errors.Join(err, os.ErrNotExist)
	})
}
