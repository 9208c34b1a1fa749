package gc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/test/e2e/kit"
)

// Process IDs and the inodes of the root directory's filesystem get short at a time. Of each the pod is evicted that
// has most, and nothing else dies. The threshold of process IDs is set by what is available right before, with a
// margin, since other programs run here: so many threads may they begin, and half as many may they end.
func TestPIDAndInodePressure(t *testing.T) {
	t.Parallel()
	// A suite next to this one has begun 750 threads within a minute, and up to three run at a time.
	const margin, inodes = 3000, 10_000 // of 20,000
	const config = transition + "evictionHard: {nodefs.inodesFree: 10k"
	var root string
	bed := start(t, config+"}\n", func(b *kit.Bed) {
		root = b.Bed.Path("kubelet")
		kit.Loopback(t, root, 512)
	})
	ns := bed.Namespace(t)
	ns.Apply(strings.Join([]string{
		onceTold("crowd", processes(margin+margin/2)), onceTold("files", files("/data", 15_000)), layered("good", ""),
		layered("some", processes(50)+"; "), volumed("many", files("/data", 1000)+"; "),
		volumed("large", "fallocate -l 200M /data/much; "),
	}, "---\n"))
	crowd, hog := ns.Running("crowd"), ns.Running("files")
	for _, name := range []string{"good", "some", "many", "large"} {
		ns.Running(name)
	}
	available, err := freePIDs()
	if err != nil {
		t.Fatal(err)
	}
	threshold := available - margin
	configure(t, bed, fmt.Sprintf("%s, pid.available: %q}\n", config, strconv.FormatInt(threshold, 10)))
	fewPIDs := func() (bool, error) {
		n, err := freePIDs()
		return n < threshold, err
	}
	if is, err := fewPIDs(); err != nil || is {
		t.Skip("other programs have begun more threads than the margin", err)
	}
	calm := bed.KubeNode(t)
	ofPIDs, ofInodes := crossing(t, fewPIDs), crossing(t, func() (bool, error) {
		disk, err := statfs(root)
		return disk.Ffree < inodes, err
	})
	ns.Exec(crowd, "app", "touch /go")
	ns.Exec(hog, "app", "touch /go")
	bed.NodeBecause(t, "pressure-pid", "this node runs out of process IDs, so pods are refused and evicted")
	quantity := resource.NewQuantity(threshold, resource.DecimalSI).String()
	// The kubelet names no containers in these two messages.
	for _, rest := range []string{
		low(t, ns, "crowd", "pids", quantity, quantity), low(t, ns, "files", "inodes", "10k", "10k"),
	} {
		if rest != "" && !strings.HasPrefix(rest, late) {
			t.Errorf("a message ends with %q", rest)
		}
	}
	took(t, bed, "crowd", ofPIDs())
	took(t, bed, "files", ofInodes())
	relieved(t, bed, calm, corev1.NodePIDPressure)
	relieved(t, bed, calm, corev1.NodeDiskPressure)
	unharmed(t, ns, "good", "some", "many", "large")
	if got := evictions(t, bed); len(got) != 2 {
		t.Errorf("evicted: %v", got)
	}
}

// onceTold is a pod that does what it is to do once it has the file /go, and goes on running.
func onceTold(name, does string) string {
	return pod(name, `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'until [ -e /go ]; do sleep 0.1; done; `+does+`; wait; sleep 3600']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`)
}

// processes is a command that begins so many of them. Each is a copy of the shell that waits for a writer: a program of
// its own would take several times as long to begin.
func processes(n int) string {
	return fmt.Sprintf("mkfifo /never; i=0; while [ $i -lt %d ]; do : < /never & i=$((i+1)); done", n)
}

// freePIDs is how many more threads the machine can have, as the signal pid.available tells.
func freePIDs() (int64, error) {
	most, err := limit("pid_max")
	threads, threadsErr := limit("threads-max")
	load, loadErr := os.ReadFile("/proc/loadavg")
	if err := errors.Join(err, threadsErr, loadErr); err != nil {
		return 0, err
	}
	var now, all int64
	if _, err := fmt.Sscanf(strings.Fields(string(load))[3], "%d/%d", &now, &all); err != nil {
		return 0, err
	}
	return min(most, threads) - all, nil
}

func limit(name string) (int64, error) {
	data, err := os.ReadFile("/proc/sys/kernel/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
