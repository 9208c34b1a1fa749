package gc

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
)

func nodeEvent(t *testing.T, bed *kit.Bed, reason, message string) error {
	t.Helper()
	list, err := bed.Client.CoreV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
	if err != nil {
		return err
	}
	for _, e := range list.Items {
		if strings.Contains(e.Message, message) {
			return nil
		}
	}
	return fmt.Errorf("%d Events %s, none with %q", len(list.Items), reason, message)
}

// A full filesystem of the root directory: the pod that has filled it is evicted.
func TestDiskPressure(t *testing.T) {
	t.Parallel()
	bed := start(t, "evictionHard: {nodefs.available: 100Mi}\n"+transition, func(b *kit.Bed) {
		kit.Loopback(t, b.Bed.Path("kubelet"), 512)
	})
	ns := bed.Namespace(t)
	ns.Apply(pod("good", `
  initContainers:
  - {name: fill, image: "busybox:1.36", command: [dd, if=/dev/zero, of=/data/some, bs=1M, count=50], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`))
	ns.Running("good")
	before := bed.KubeNode(t)
	ns.Apply(pod("hog", `
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, "dd if=/dev/zero of=/data/much bs=1M count=400; sleep 3600"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, emptyDir: {}}]
`))
	evicted(t, ns, "hog", "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: ", true)
	pressed := condition(t, bed, before, corev1.NodeDiskPressure, corev1.ConditionTrue)
	// The pressure is told for as long as the transition takes at least, also while the pod's files go.
	bed.NodeSays(t, "this node runs out of room on its disks, so pods are refused and evicted")
	ns.Apply(pod("refused", "  nodeName: "+kit.NodeName+"\n  containers: [{name: app, image: \"busybox:1.36\"}]\n"))
	ns.Says("refused", "this node has refused it: this node takes no such pods while it has DiskPressure")
	ns.Says("hog", "this node has ended it: this node ran out of ephemeral-storage (", "at 100Mi it evicts)",
		": its container app used ",
		"kubelot why node shows who else was evicted")
	condition(t, bed, pressed, corev1.NodeDiskPressure, corev1.ConditionFalse)
	unharmed(t, ns, "good")
}

// The filesystem of the root directory gets short by a soft threshold: that is told at once, and nobody is evicted
// during its grace period. Then pods are, until the minimum reclaim is free too, and have the time to end that they ask
// for.
func TestSoftDiskPressure(t *testing.T) {
	t.Parallel()
	const before, threshold, reclaim = 440, 200, 100 // MiB
	config := func(grace string) string {
		return fmt.Sprintf("evictionHard: {nodefs.available: 10Mi}\nevictionSoft: {nodefs.available: "+
			"%dMi}\nevictionSoftGracePeriod: {nodefs.available: %s}\n"+
			"evictionMinimumReclaim: {nodefs.available: %dMi}\nevictionMaxPodGracePeriod: 120\nvolumeStatsAggPeriod: 1s\n",
			threshold, grace, reclaim) + transition
	}
	bed := start(t, config("1h"), func(b *kit.Bed) {
		root := b.Bed.Path("kubelet")
		kit.Loopback(t, root, 2*before)
		var disk syscall.Statfs_t
		if err := syscall.Statfs(root, &disk); err != nil {
			t.Fatal(err)
		}
		command(t, "fallocate", "-l", strconv.FormatInt(int64(disk.Bavail)*disk.Bsize-before<<20, 10),
			filepath.Join(root, "ballast"))
	})
	ns := bed.Namespace(t)
	fill := func(name string, mib int) {
		t.Helper()
		ns.Apply(strings.Replace(pod(name, fmt.Sprintf(`
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "sleep 2; exit 7" TERM; dd if=/dev/zero of=/data/some bs=1M count=%d && touch /data/full; while :; do sleep 1000 & wait; done']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`, mib)), "PeriodSeconds: 5", "PeriodSeconds: 120", 1))
		p := ns.Running(name)
		kit.Eventually(t, "pod "+name+" to have written", func() error {
			_, err := ns.Try(p, "app", "test -e /data/full")
			return err
		})
	}
	// Without hog there is more than the threshold, and less than that and the minimum reclaim.
	fill("good", 20)
	fill("second", 150)
	calm := bed.KubeNode(t)
	fill("hog", 160)
	pressed := condition(t, bed, calm, corev1.NodeDiskPressure, corev1.ConditionTrue)
	unharmed(t, ns, "good", "second", "hog")
	configure(t, bed, config("1s"))
	for _, name := range []string{"hog", "second"} {
		p := evicted(t, ns, name, fmt.Sprintf("The node was low on resource: ephemeral-storage. Threshold quantity: %dMi, "+
			"available: ", threshold), true)
		if s := kit.Status(p, "app"); s.State.Terminated == nil || s.State.Terminated.ExitCode != 7 {
			t.Errorf("pod %s ended as %+v; want it to end by itself", name, s.State)
		}
	}
	condition(t, bed, pressed, corev1.NodeDiskPressure, corev1.ConditionFalse)
	unharmed(t, ns, "good")
}

// A full filesystem of images is freed down to the low threshold, and what is used or pinned stays.
func TestImages(t *testing.T) {
	t.Parallel()
	const size, padded = 1000, 30
	var root string
	bed := start(t, "imageGCHighThresholdPercent: 60\nimageGCLowThresholdPercent: 50\nimageMinimumGCAge: 1s\n",
		func(b *kit.Bed) { root = imagesOn(t, b, size) })
	ns := bed.Namespace(t)
	const used = "docker.io/library/used:1"
	load(t, bed, used, padded)
	ns.Apply(pod("user", `
  containers:
  - {name: app, image: "`+used+`", imagePullPolicy: Never, command: $FOREVER}
`))
	ns.Running("user")
	// gc isn't to act before the disk is full. An image takes 6 % of it, as layer and as snapshot, and gc counts 3 % for
	// each: from 71 % it takes seven of ten to get to the low threshold.
	bed.Signal(t, "gc", syscall.SIGSTOP)
	for i := 0; percent(t, root) < 65; i++ {
		load(t, bed, fmt.Sprintf("docker.io/library/waste:%d", i), padded)
	}
	bed.Signal(t, "gc", syscall.SIGCONT)
	begin := time.Now()
	t.Logf("filled to %d%%", percent(t, root))
	// It may come too late: gc acts meanwhile.
	plan, err := exec.Command(bed.Program("kubelot"), "gc", "--dry-run", "--all",
		"--run-dir="+bed.Bed.Path("run")).CombinedOutput()
	t.Logf("%v\n%s", err, plan)
	kit.Eventually(t, "the filesystem of images to be freed", func() error {
		if p := percent(t, root); p > 50 {
			return fmt.Errorf("it is %d%% full", p)
		}
		return nil
	})
	t.Logf("freed to %d%% after %s", percent(t, root), time.Since(begin))
	list, err := bed.CRI.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprint(list.GetImages())
	for _, want := range []string{used, images.PauseRef} {
		if !strings.Contains(left, want) {
			t.Errorf("image %s is gone; left are %s", want, left)
		}
	}
	if !strings.Contains(left, "library/waste:") {
		t.Error("all unused images are gone, also those below the low threshold")
	}
	unharmed(t, ns, "user")
}

// percent is how full a filesystem is, as image collection reckons it.
func percent(t *testing.T, dir string) int {
	t.Helper()
	var free, blocks int
	if _, err := fmt.Sscan(command(t, "stat", "-f", "-c", "%a %b", dir), &free, &blocks); err != nil {
		t.Fatal(err)
	}
	return 100 - free*100/blocks
}
