package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
)

// tokens is the file in which the test's driver keeps the tokens that it was given last.
const tokens = "context.csi.storage.k8s.io_serviceAccount.tokens"

// A driver that asks for it is told of its pods again and again, with the secret as it is by then: a volume of the
// pod's own spec changes under the running pod. A try that fails leaves the pod its volume. The next volume daemon has
// no tokens, and gives the driver fresh ones.
func TestRepublishedCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	yes, no := true, false
	driver := bed.CSIDriver(t, "republished.csi.test", storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent,
		},
		AttachRequired: &no, PodInfoOnMount: &yes, RequiresRepublish: &yes,
		TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
	}, "--no-attach")
	driver.Start()
	ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: old}\n---\n" +
		pod("own", strings.ReplaceAll(inlinePod, "$DRIVER", driver.Name)))
	ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name), FSType: "ext4",
	}}, nil)
	ns.Apply(ns.Claim("data", "") + pod("claimed", strings.ReplaceAll(claimPod, "CLAIM", "data")))
	own, claimed := ns.Running("own"), ns.Running("claimed")
	ns.Equal(own, "app", "cat /data/secrets.password", "old")

	driver.Fault("NodePublishVolume", &csidriver.Fault{Times: 1, Code: codes.Internal, Message: "not now"})
	if _, err := bed.Client.CoreV1().Secrets(ns.Name).Patch(t.Context(), "key", types.MergePatchType,
		[]byte(`{"stringData": {"password": "new"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	byItself(t, ns, driver, own, claimed)
	before := ns.Exec(own, "app", "cat /data/"+tokens)
	killVolumeDaemon(t)
	kit.Eventually(t, "fresh tokens", func() error {
		now, err := ns.Try(own, "app", "cat /data/"+tokens)
		if err == nil && (now == before || !strings.Contains(now, `"vault":{"token":`)) {
			err = fmt.Errorf("the driver has %q", now)
		}
		return err
	})

	calls := driver.Calls("NodePublishVolume", "NodeUnpublishVolume")
	if !slices.Contains(calls, "NodePublishVolume Internal") || slices.Contains(calls, "NodeUnpublishVolume OK") {
		t.Errorf("the driver was called %q", calls)
	}
	for _, p := range []*corev1.Pod{own, claimed} {
		now := ns.Wait(p.Name, "still there", func(*corev1.Pod) bool { return true })
		if now.UID != p.UID || !kit.Ready(now) || kit.Restarts(now, "app") > 0 {
			t.Errorf("pod %s is %+v", p.Name, now.Status)
		}
		ns.Delete(p.Name, -1)
		ns.Gone(p)
	}
	unstaged(t, driver)
}

// byItself waits until the driver has been told of both pods again. No daemon starts meanwhile, so that time is the
// only reason.
func byItself(t *testing.T, ns *kit.Namespace, driver *kit.Driver, own, claimed *corev1.Pod) {
	t.Helper()
	volumeDaemon.RLock()
	defer volumeDaemon.RUnlock()
	seen := len(publications(t, driver, claimed))
	kit.Eventually(t, "the new password in the running pod", func() error {
		now, err := ns.Try(own, "app", "cat /data/secrets.password")
		if err == nil && now != "new" {
			err = fmt.Errorf("it is %q", now)
		}
		return err
	})
	kit.Eventually(t, "another publication of the persistent volume", func() error {
		list := publications(t, driver, claimed)
		if len(list) <= seen {
			return fmt.Errorf("there are %d", len(list))
		}
		if last := list[len(list)-1]; last.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"] == "" {
			t.Errorf("it has no tokens: %v", last.GetVolumeContext())
		}
		return nil
	})
}

// publications are the requests to publish a volume for the pod.
func publications(t *testing.T, driver *kit.Driver, p *corev1.Pod) []*csiapi.NodePublishVolumeRequest {
	t.Helper()
	calls, err := csidriver.ReadCalls(driver.State)
	if err != nil {
		t.Fatal(err)
	}
	var list []*csiapi.NodePublishVolumeRequest
	for _, c := range calls {
		if c.Method != "NodePublishVolume" || len(c.Request) == 0 {
			continue
		}
		r := &csiapi.NodePublishVolumeRequest{}
		if err := protojson.Unmarshal(c.Request, r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.GetTargetPath(), string(p.UID)) {
			list = append(list, r)
		}
	}
	return list
}

// allocatable waits until the CSINode says that the node may have so many volumes of the driver.
func allocatable(t *testing.T, driver *kit.Driver, want int32) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d volumes of %s in the CSINode", want, driver.Name), func() error {
		n, err := bed.Client.StorageV1().CSINodes().Get(t.Context(), kit.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, d := range n.Spec.Drivers {
			if d.Name == driver.Name && d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count == want {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", n.Spec.Drivers)
	})
}

// limited is a driver of which the node may have nine volumes at first. It is asked for that number again with the
// period.
func limited(t *testing.T, name string, seconds int64) *kit.Driver {
	t.Helper()
	driver := bed.CSIDriver(t, name, storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &seconds},
		"--max-volumes=9")
	driver.Start()
	allocatable(t, driver, 9)
	return driver
}

func sets(t *testing.T, driver *kit.Driver, most int64) {
	t.Helper()
	if err := csidriver.SetMaxVolumes(driver.State, most); err != nil {
		t.Fatal(err)
	}
}

// How many volumes the node may have is brought up to date with the period of the CSIDriver object.
func TestPeriodicCSINode(t *testing.T) {
	t.Parallel()
	driver := limited(t, "periodic.csi.test", 10)
	for _, most := range []int32{7, 12} {
		sets(t, driver, int64(most))
		allocatable(t, driver, most)
	}
}

// A volume that can't be attached because the node has too many brings that number up to date, long before the period
// is over. The pod waits for a while, and is rejected then: another node may have room. The test plays the attacher.
func TestExhaustedCSINode(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	driver := limited(t, "exhausted.csi.test", 24*60*60)
	sets(t, driver, 1)
	ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name), FSType: "ext4",
	}}, nil)
	ns.Apply(ns.Claim("data", "") + pod("late", strings.ReplaceAll(claimPod, "CLAIM", "data")))
	attachments := bed.Client.StorageV1().VolumeAttachments()
	failed := []byte(`{"status": {"attachError": {"message": "no room here", "errorCode": 8}}}`)
	kit.Eventually(t, "the volume's VolumeAttachment", func() error {
		list, err := attachments.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, a := range list.Items {
			if a.Spec.Attacher == driver.Name {
				_, err := attachments.Patch(t.Context(), a.Name, types.MergePatchType, failed, metav1.PatchOptions{}, "status")
				return err
			}
		}
		return fmt.Errorf("there are %d of others", len(list.Items))
	})
	allocatable(t, driver, 1)
	p := rejected(ns, "late")
	if p.Status.Reason != "VolumeAttachmentLimitExceeded" || !strings.Contains(p.Status.Message, "no room here") {
		t.Errorf("the pod is %+v", p.Status)
	}
	ns.Event("late", "VolumeAttachmentLimitExceeded", "no room here")
	ns.Delete("late", -1)
	ns.Gone(p)
}

// rejected waits until the pod is rejected. No volume daemon starts meanwhile: it would count the pod's wait from then.
func rejected(ns *kit.Namespace, name string) *corev1.Pod {
	volumeDaemon.RLock()
	defer volumeDaemon.RUnlock()
	return ns.Phase(name, corev1.PodFailed)
}
