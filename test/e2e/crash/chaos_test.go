package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// chaosTime is how long TestChaos makes trouble; the environment variable CHAOS_SECONDS prolongs it.
const chaosTime = 15 * time.Second

// specs are pods of all kinds, as JSON, as manifests in one line must be.
var specs = []string{
	`"containers": [{"name": "app", "image": "busybox:1.36", "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"]}]`,
	`"containers": [{"name": "app", "image": "busybox:1.36", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1000 & wait; done"]}]`,
	`"restartPolicy": "Never", "containers": [{"name": "app", "image": "busybox:1.36", "command": ["sleep", "0.3"]}]`,
	`"restartPolicy": "OnFailure", "containers": [{"name": "app", "image": "busybox:1.36", "command": ["false"]}]`,
	`"containers": [{"name": "app", "image": "127.0.0.1:1/no/such:1"}]`,
	`"initContainers": [{"name": "side", "image": "busybox:1.36", "restartPolicy": "Always", "command": ["sleep", "1000"]}],
	 "containers": [{"name": "app", "image": "busybox:1.36", "command": ["sleep", "1000"], "volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "x"}]}],
	 "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}]`,
	`"containers": [{"name": "app", "image": "busybox:1.36", "command": ["sleep", "1000"], "startupProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
	 "livenessProbe": {"exec": {"command": ["sh", "-c", "mkdir /tmp/once"]}, "periodSeconds": 2, "failureThreshold": 1}, "readinessProbe": {"tcpSocket": {"port": 81}, "periodSeconds": 1}}]`,
	// From here on they need the API server, so they can't be static pods.
	`"containers": [{"name": "app", "image": "busybox:1.36", "command": ["sleep", "1000"], "volumeMounts": [{"name": "c", "mountPath": "/c"}]}],
	 "volumes": [{"name": "c", "configMap": {"name": "absent"}}]`,
}

const staticSpecs = 7

// chaos is trouble of every kind, in an order that follows from the seed.
type chaos struct {
	*rand.Rand
	t    *testing.T
	ns   *kit.Namespace
	made int
	live []string
}

// TestChaos creates, deletes and changes pods at random, kills daemons and restarts containerd meanwhile. In the end
// nothing may be left of any of it.
func TestChaos(t *testing.T) {
	seed, duration := uint64(1), chaosTime // the same trouble in every run, unless CHAOS_SEED asks for other
	if s, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		seed = s
	}
	if s, err := strconv.Atoi(os.Getenv("CHAOS_SECONDS")); err == nil {
		duration = time.Duration(s) * time.Second
	}
	t.Logf("seed %d", seed)
	c := &chaos{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, ns: bed.Namespace(t)}
	for end := time.Now().Add(duration); time.Now().Before(end); {
		c.act()
	}
	t.Logf("%d pods were created, %d of them not deleted yet", c.made, len(c.live))
	for i := range 5 {
		_ = os.Remove(c.manifest(i))
	}
	for len(c.live) > 0 {
		c.delete()
	}
	kit.Eventually(t, "the API server to have no pods", func() error {
		list, err := bed.Client.CoreV1().Pods(c.ns.Name).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("it has %d, such as %s: %+v", len(list.Items), list.Items[0].Name, list.Items[0].Status)
		}
		return err
	})
	kit.Eventually(t, "the node to be clean", func() error { return bed.Clean(t.Context()) })
}

// act does one thing.
func (c *chaos) act() {
	switch n := c.IntN(40); {
	case n < 16 && len(c.live) < 40:
		c.made++
		name := fmt.Sprintf("p-%d", c.made)
		c.ns.Apply(c.pod(name, specs[c.IntN(len(specs))]))
		c.live = append(c.live, name)
	case n < 28:
		c.delete()
	case n < 32:
		kill(c.t, bed, daemons[c.IntN(len(daemons))])
	case n == 32 && c.IntN(4) == 0:
		crashContainerd(c.t)
	case n < 36:
		c.static()
	default:
		time.Sleep(time.Duration(c.IntN(200)) * time.Millisecond)
	}
}

func (c *chaos) pod(name, spec string) string {
	return fmt.Sprintf(
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": %q}, "spec": {"terminationGracePeriodSeconds": %d, %s}}`, name, c.ns.Name, c.IntN(4), spec)
}

// delete deletes one of the pods, by force or not.
func (c *chaos) delete() {
	if len(c.live) == 0 {
		return
	}
	i := c.IntN(len(c.live))
	c.ns.Delete(c.live[i], int64(c.IntN(4)-1))
	c.live = append(c.live[:i], c.live[i+1:]...)
}

func (c *chaos) manifest(i int) string {
	return filepath.Join(bed.Node.ManifestDir, fmt.Sprintf("chaos-%d.yaml", i))
}

// static removes or changes a manifest; two of them may have the same pod.
func (c *chaos) static() {
	path := c.manifest(c.IntN(5))
	if c.IntN(2) == 0 {
		_ = os.Remove(path)
		return
	}
	content := c.pod(fmt.Sprintf("s-%d", c.IntN(4)), specs[c.IntN(staticSpecs)])
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}
