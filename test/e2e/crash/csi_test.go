package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
)

// csiRounds is how many volumes the test has come and go; CSI_ROUNDS says another number. Of the kills below, 35 rounds
// do each once.
const csiRounds = 20

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

// csiPodOf is the pod of that name with a claim of its name.
func csiPodOf(name, use string) string {
	return strings.NewReplacer("NAME", name, "USE", use).Replace(csiPod)
}

// csiKill is who is killed during which call of a volume's way.
type csiKill struct{ victim, method string }

// The driver dies before it has done what it was asked for, or when it has done it and has not said so.
var (
	csiMethods = []string{
		"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "NodeExpandVolume",
	}
	csiVictims = []string{"volume", "driver before", "podsync", "driver after", "lease", "status", "API server"}
)

// csiKillOf is the kill of a round. The first rounds have all methods and all victims.
func csiKillOf(round int) csiKill {
	return csiKill{csiVictims[round%len(csiVictims)], csiMethods[round%len(csiMethods)]}
}

// Whoever is killed during whichever call, a volume is mounted once and has its data, and nothing of it is left when
// its pod has gone.
func TestCSIKilledAtEveryCall(t *testing.T) {
	rounds := csiRounds
	if text := os.Getenv("CSI_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	ns := bed.Namespace(t)
	no := false
	driver := bed.CSIDriver(t, "killed.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	for i := range rounds {
		k := csiKillOf(i)
		// Each kill meets a filesystem in one run of the list, and a device in the next.
		mode := corev1.PersistentVolumeFilesystem
		if i%2 == 1 || k.method == "NodeExpandVolume" { // not every root may make an ext4 larger that is mounted
			mode = corev1.PersistentVolumeBlock
		}
		t.Logf("round %d: %s during %s of a volume with mode %s", i, k.victim, k.method, mode)
		r := csiRound{t: t, ns: ns, driver: driver, name: fmt.Sprintf("r%d", i), block: mode == corev1.PersistentVolumeBlock}
		r.run(k, mode)
		if t.Failed() {
			return
		}
	}
}

// csiRound is one volume's way.
type csiRound struct {
	t      *testing.T
	ns     *kit.Namespace
	driver *kit.Driver
	name   string
	pv     string
	block  bool
}

func (r *csiRound) run(k csiKill, mode corev1.PersistentVolumeMode) {
	handle := r.driver.Provision(r.ns.Name + "-" + r.name)
	r.pv = r.ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: r.driver.Name, VolumeHandle: handle,
	}}, r.ns.For(r.name, mode))
	use, write := "volumeMounts: [{name: data, mountPath: /data}]", "printf precious > /data/file && cat /data/file"
	if r.block {
		use, write = "volumeDevices: [{name: data, devicePath: /dev/xvda}]",
			"printf precious > /dev/xvda && head -c 8 /dev/xvda"
	}
	starts := k.method != "NodeUnpublishVolume" && k.method != "NodeUnstageVolume"
	var strike func()
	if starts {
		strike = r.arm(k)
	}
	r.ns.Apply(r.ns.Claim(r.name, ", volumeMode: "+string(mode)))
	if k.method == "NodeExpandVolume" {
		kit.Eventually(r.t, "the claim is bound", func() error {
			claim, err := bed.Client.CoreV1().PersistentVolumeClaims(r.ns.Name).Get(r.t.Context(), r.name, metav1.GetOptions{})
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("it is %s", claim.Status.Phase)
			}
			return err
		})
		r.driver.Grow(r.ns, r.name, r.pv, handle, resource.MustParse("2Gi"))
	}
	r.ns.Apply(csiPodOf(r.name, use))
	if starts {
		strike()
	}
	p := r.ns.Running(r.name)
	r.ns.Equal(p, "app", write, "precious")
	if k.method == "NodeExpandVolume" {
		r.ns.Equal(p, "app", "blockdev --getsize64 /dev/xvda", "2147483648")
	}
	r.once(string(p.UID))
	if !starts {
		strike = r.arm(k)
	}
	r.ns.Delete(r.name, -1)
	if !starts {
		strike()
	}
	r.ns.Gone(p)
	kit.Eventually(r.t, "nothing is left of the volume", func() error { return r.gone(string(p.UID), handle) })
}

// arm prepares the kill; strike waits for the call and has it happen.
func (r *csiRound) arm(k csiKill) (strike func()) {
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
func (r *csiRound) places(uid string) []string {
	root := bed.Node.RootDir
	if r.block {
		devices := filepath.Join(root, "plugins/kubernetes.io/csi/volumeDevices")
		return []string{filepath.Join(devices, "publish", r.pv, uid), filepath.Join(devices, r.pv, "dev", uid)}
	}
	return []string{filepath.Join(root, "pods", uid, "volumes/kubernetes.io~csi", r.pv, "mount")}
}

// once checks that the volume is mounted once at each of its places.
func (r *csiRound) once(uid string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, place := range r.places(uid) {
		if n := strings.Count(string(table), " "+place+" "); n != 1 {
			r.t.Errorf("%d mounts at %s", n, place)
		}
	}
}

// gone says what is left of the volume.
func (r *csiRound) gone(uid, handle string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && (strings.Contains(string(table), uid) || strings.Contains(string(table), r.pv)) {
		err = errors.New("something is mounted")
	}
	plugins := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi")
	left, globErr := filepath.Glob(filepath.Join(plugins, r.driver.Name, "*"))
	err = errors.Join(err, globErr)
	for _, pattern := range []string{
		filepath.Join(plugins, "volumeDevices", r.pv), filepath.Join(plugins, "volumeDevices", "*", r.pv),
		filepath.Join(bed.Node.RootDir, "pods", uid),
	} {
		more, globErr := filepath.Glob(pattern)
		left, err = append(left, more...), errors.Join(err, globErr)
	}
	loops, globErr := filepath.Glob("/sys/block/loop*/loop/backing_file")
	err = errors.Join(err, globErr)
	for _, loop := range loops {
		if data, readErr := os.ReadFile(loop); readErr == nil && strings.Contains(string(data), handle) {
			left = append(left, "a loop device of "+string(data))
		}
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%q are left", left)
	}
	return err
}
