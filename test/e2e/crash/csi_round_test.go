package crash

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
)

const csiPod = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']
    USE
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
`

// csiRound is one volume's way.
type csiRound struct {
	t      *testing.T
	ns     *kit.Namespace
	driver *kit.Driver
	name   string
	block  bool
	// comes sets the others.
	pod        *corev1.Pod
	pv, handle string
}

// registers has the driver begin anew.
func (r *csiRound) registers(k csiKill) {
	r.t.Helper()
	r.driver.Kill()
	strike := r.arm(k)
	r.driver.Start()
	strike()
	kit.Eventually(r.t, "the driver's registration", r.driver.Told)
	r.driver.InCSINode(true)
}

// comes has a pod come with the volume. A volume whose growth is the call grows before.
func (r *csiRound) comes(k csiKill) {
	r.t.Helper()
	grows, mode, kind := k.method == "NodeExpandVolume", corev1.PersistentVolumeFilesystem, ""
	bytes := int64(0)
	use, write := "volumeMounts: [{name: data, mountPath: /data}]", "printf precious > /data/file && cat /data/file"
	switch {
	case r.block:
		mode, use = corev1.PersistentVolumeBlock, "volumeDevices: [{name: data, devicePath: /dev/xvda}]"
		write = "printf precious > /dev/xvda && head -c 8 /dev/xvda"
	case grows:
		kind, bytes = "xfs", 512<<20 // it has no smaller ones
	}
	r.handle = r.driver.ProvisionOf(r.ns.Name+"-"+r.name, bytes)
	r.pv = r.ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: r.driver.Name, VolumeHandle: r.handle, FSType: kind,
	}}, r.ns.For(r.name, mode))
	strike := r.arm(k)
	r.ns.Apply(r.ns.Claim(r.name, ", volumeMode: "+string(mode)))
	if grows {
		r.grow()
	}
	r.ns.Apply(strings.NewReplacer("NAME", r.name, "USE", use).Replace(csiPod))
	strike()
	r.pod = r.ns.Running(r.name)
	r.ns.Equal(r.pod, "app", write, "precious")
	switch {
	case grows && r.block:
		r.ns.Equal(r.pod, "app", "blockdev --getsize64 /dev/xvda", "2147483648")
	case grows:
		r.ns.Equal(r.pod, "app", "[ $(df -m /data | tail -1 | awk '{print $2}') -gt 1500 ] && echo larger", "larger")
	}
	r.once()
}

// grow makes the volume larger once the claim is bound.
func (r *csiRound) grow() {
	r.t.Helper()
	kit.Eventually(r.t, "the claim is bound", func() error {
		claim, err := bed.Client.CoreV1().PersistentVolumeClaims(r.ns.Name).Get(r.t.Context(), r.name, metav1.GetOptions{})
		if err == nil && claim.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", claim.Status.Phase)
		}
		return err
	})
	r.driver.Grow(r.ns, r.name, r.pv, r.handle, resource.MustParse("2Gi"))
}

// has asks how full the volume is that the pod has, or has it published again.
func (r *csiRound) has(k csiKill) {
	r.t.Helper()
	if k.again {
		r.isPublishedAgain(k)
	} else {
		r.isLookedAt(k)
	}
	r.stays()
}

// isLookedAt asks how full the volume is.
func (r *csiRound) isLookedAt(k csiKill) {
	r.t.Helper()
	strike := r.arm(k)
	ctx, cancel := context.WithCancel(r.t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	// The driver is asked once somebody asks the stats daemon, whose answer waits for it.
	asking.Go(func() {
		for ctx.Err() == nil {
			_ = r.figures(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	})
	strike()
	kit.Eventually(r.t, "the size of the volume", func() error { return r.figures(r.t.Context()) })
}

// figures is an error unless the stats daemon says how large the volume is.
func (r *csiRound) figures(ctx context.Context) error {
	page, err := bed.TryPage(ctx, "stats", "/stats/summary")
	var s statsapi.Summary
	if err == nil {
		err = json.Unmarshal(page, &s)
	}
	if err != nil {
		return err
	}
	for i := range s.Pods {
		for _, v := range s.Pods[i].VolumeStats {
			if s.Pods[i].PodRef.UID == string(r.pod.UID) && v.PVCRef != nil && v.CapacityBytes != nil && *v.CapacityBytes > 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("none of %d pods has it", len(s.Pods))
}

// isPublishedAgain has the volume published again: the next volume daemon does so at once.
func (r *csiRound) isPublishedAgain(k csiKill) {
	r.t.Helper()
	published := func() (n int) {
		for _, call := range r.driver.Calls("NodePublishVolume") {
			if call == "NodePublishVolume OK" {
				n++
			}
		}
		return n
	}
	before, strike := published(), r.arm(k)
	kill(r.t, bed, "volume")
	strike()
	kit.Eventually(r.t, "another publication", func() error {
		if n := published(); n <= before {
			return fmt.Errorf("the driver has published %d times, and %d before", n, before)
		}
		return nil
	})
}

// stays checks that the pod has the volume as before.
func (r *csiRound) stays() {
	r.t.Helper()
	is := r.ns.Running(r.name)
	if a, b := kit.Status(r.pod, "app"), kit.Status(is, "app"); a.ContainerID != b.ContainerID {
		r.t.Errorf("pod %s ran in %s and runs in %s", r.name, a.ContainerID, b.ContainerID)
	}
	read := "cat /data/file"
	if r.block {
		read = "head -c 8 /dev/xvda"
	}
	r.ns.Equal(is, "app", read, "precious")
	r.once()
}

// goes has the pod go.
func (r *csiRound) goes(k csiKill) {
	r.t.Helper()
	strike := r.arm(k)
	r.ns.Delete(r.name, -1)
	strike()
	r.ns.Gone(r.pod)
	kit.Eventually(r.t, "nothing is left of the volume", r.gone)
}

// arm prepares the kill; strike waits for the call and has it happen.
func (r *csiRound) arm(k csiKill) (strike func()) {
	r.t.Helper()
	if k.victim == "" {
		return func() {}
	}
	if when, ok := strings.CutPrefix(k.victim, "driver "); ok {
		r.driver.Fault(k.method, &csidriver.Fault{Times: 1, Kill: when})
		return func() {
			r.driver.Dies()
			r.driver.Restart()
		}
	}
	before := len(r.driver.Calls(k.method))
	r.driver.Fault(k.method, &csidriver.Fault{Times: 1, DelaySeconds: 0.5})
	return func() {
		r.driver.Called(k.method, before)
		strikeDown(r.t, k.victim)
	}
}

// strikeDown kills a daemon, or the API server for a moment.
func strikeDown(t *testing.T, victim string) {
	t.Helper()
	if victim != "API server" {
		bed.Signal(t, victim, syscall.SIGKILL)
		return
	}
	bed.ControlPlane.StopAPIServer()
	startAPIServer(t)
}

// places are where the volume is mounted while the pod has it.
func (r *csiRound) places() []string {
	root, uid := bed.Node.RootDir, string(r.pod.UID)
	if r.block {
		devices := filepath.Join(root, "plugins/kubernetes.io/csi/volumeDevices")
		return []string{filepath.Join(devices, "publish", r.pv, uid), filepath.Join(devices, r.pv, "dev", uid)}
	}
	return []string{
		filepath.Join(root, "pods", uid, "volumes/kubernetes.io~csi", r.pv, "mount"),
		filepath.Join(r.staged(), "globalmount"),
	}
}

// staged is the node's directory of the volume, which has a filesystem.
func (r *csiRound) staged() string {
	return filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", r.driver.Name,
		fmt.Sprintf("%x", sha256.Sum256([]byte(r.handle))))
}

// once checks that the volume is mounted once at each of its places.
func (r *csiRound) once() {
	r.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, place := range r.places() {
		if n := strings.Count(string(table), " "+place+" "); n != 1 {
			r.t.Errorf("%d mounts at %s", n, place)
		}
	}
}

// gone says what is left of the volume.
func (r *csiRound) gone() error {
	uid := string(r.pod.UID)
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && (strings.Contains(string(table), uid) || strings.Contains(string(table), r.pv)) {
		err = errors.New("something is mounted")
	}
	devices := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi/volumeDevices")
	var left []string
	for _, pattern := range []string{
		r.staged(), filepath.Join(devices, r.pv), filepath.Join(devices, "*", r.pv),
		filepath.Join(bed.Node.RootDir, "pods", uid),
	} {
		more, globErr := filepath.Glob(pattern)
		left, err = append(left, more...), errors.Join(err, globErr)
	}
	loops, globErr := filepath.Glob("/sys/block/loop*/loop/backing_file")
	err = errors.Join(err, globErr)
	for _, loop := range loops {
		if data, readErr := os.ReadFile(loop); readErr == nil && strings.Contains(string(data), r.handle) {
			left = append(left, "a loop device of "+string(data))
		}
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%q are left", left)
	}
	return err
}
