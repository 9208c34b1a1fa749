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
)

// The node's process IDs get short: the pod that has most processes is evicted, and nothing else dies. The threshold is set by what is
// available right before, with a margin, since other programs run here: so many threads may they begin before the hog comes, and as
// many may they end then.
func TestPIDPressure(t *testing.T) {
	t.Parallel()
	const margin = 1000
	bed := start(t, transition, nil)
	ns := bed.Namespace(t)
	ns.Apply(pod("good", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
`) + "---\n" + crowd("some", 50))
	ns.Running("good")
	ns.Running("some")
	available, err := freePIDs()
	if err != nil {
		t.Fatal(err)
	}
	threshold := available - margin
	configure(t, bed, fmt.Sprintf("evictionHard: {pid.available: %q}\n", strconv.FormatInt(threshold, 10))+transition)
	short := func() (bool, error) {
		n, err := freePIDs()
		return n < threshold, err
	}
	if is, err := short(); err != nil || is {
		t.Skip("other programs have begun more threads than the margin", err)
	}
	calm := bed.KubeNode(t)
	crossed := crossing(t, short)
	ns.Apply(crowd("hog", 2*margin))
	quantity := resource.NewQuantity(threshold, resource.DecimalSI).String()
	if rest := low(t, ns, "hog", "pids", quantity, quantity); rest != "" {
		t.Errorf("the message ends with %q; the kubelet names no containers", rest)
	}
	if got := evictions(t, bed, crossed()); got != "hog" {
		t.Errorf("evicted: %s", got)
	}
	relieved(t, bed, calm, corev1.NodePIDPressure)
	unharmed(t, ns, "good", "some")
}

// crowd is a pod of so many sleeping processes.
func crowd(name string, processes int) string {
	return pod(name, fmt.Sprintf(`
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, 'i=0; while [ $i -lt %d ]; do sleep 3600 & i=$((i+1)); done; wait']}
`, processes))
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
