package gc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// forever is a shell command that ends at once when told to.
const forever = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`

// pod makes a manifest of what every pod has and the rest of its spec. $FOREVER is replaced.
func pod(name, spec string) string {
	manifest := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  terminationGracePeriodSeconds: 5\n" +
		spec
	return strings.ReplaceAll(manifest, "$FOREVER", "["+`sh, -c, '`+forever+`']`)
}

// transition is how long a pressure is told at least: so long that the API server is told of it even if that takes
// long.
const transition = "evictionPressureTransitionPeriod: 30s\n"

// start runs a bed with a drop-in of the KubeletConfiguration; prepare runs before the node does.
func start(t *testing.T, config string, prepare func(*kit.Bed)) *kit.Bed {
	t.Helper()
	return startWith(t, config, func(b *kit.Bed) []string {
		if prepare != nil {
			prepare(b)
		}
		return nil
	})
}

// startWith is start with a prepare that returns arguments of the node.
func startWith(t *testing.T, config string, prepare func(*kit.Bed) []string) *kit.Bed {
	t.Helper()
	bed := kit.StartWithoutNode(t)
	t.Cleanup(func() {
		if t.Failed() && bed.Node != nil {
			if data, err := os.ReadFile(bed.Node.LogPath()); err == nil {
				for line := range strings.Lines(string(data)) {
					if strings.Contains(line, `action="evict pod"`) {
						t.Log(line) // says by which figures
					}
				}
				t.Logf("the crew's log:\n%s", tail(string(data), 80))
			}
		}
	})
	args := append(prepare(bed), "--config-dir="+dropIns(bed), "--v=4")
	write(t, bed, config)
	if err := bed.StartNode(context.WithoutCancel(t.Context()), node.Kubelot, args...); err != nil {
		t.Fatal(err)
	}
	return bed
}

func dropIns(bed *kit.Bed) string { return bed.Bed.Path("drop-ins") }

// write writes the drop-in.
func write(t *testing.T, bed *kit.Bed, config string) {
	t.Helper()
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + config
	if err := os.MkdirAll(dropIns(bed), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dropIns(bed), "10-gc.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// configure changes the drop-in and restarts gc, which reads it.
func configure(t *testing.T, bed *kit.Bed, config string) {
	t.Helper()
	write(t, bed, config)
	before, err := bed.Daemon("gc")
	if err != nil {
		t.Fatal(err)
	}
	bed.Signal(t, "gc", syscall.SIGTERM)
	kit.Eventually(t, "another process of gc", func() error {
		if now, err := bed.Daemon("gc"); err != nil || now == before {
			return fmt.Errorf("process %d: %w", now, err)
		}
		return nil
	})
}

func number(t *testing.T, path string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skip("this test reads figures as cgroup v1 has them")
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// available is the memory that the eviction signal memory.available tells of on cgroup v1, in bytes.
func available(t *testing.T) int64 {
	t.Helper()
	total := field(t, "/proc/meminfo", "MemTotal:") << 10
	used := number(t, "/sys/fs/cgroup/memory/memory.usage_in_bytes")
	return total - (used - field(t, "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"))
}

func field(t *testing.T, path, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// evicted waits until the pod has failed, and checks that it was evicted with a message that begins with the text.
func evicted(t *testing.T, ns *kit.Namespace, name, message string, disrupted bool) *corev1.Pod {
	t.Helper()
	p := ns.Phase(name, corev1.PodFailed)
	if p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, message) {
		t.Errorf("pod %s: reason %q, message %q; want Evicted, %q", name, p.Status.Reason, p.Status.Message, message)
	}
	has := false
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			has = c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" && c.Message == p.Status.Message
		}
	}
	if has != disrupted {
		t.Errorf("pod %s has a right DisruptionTarget: %v; want %v\n%+v", name, has, disrupted, p.Status.Conditions)
	}
	ns.Event(name, "Evicted", p.Status.Message)
	return p
}

// unharmed checks that a pod has gone on running all the time.
func unharmed(t *testing.T, ns *kit.Namespace, names ...string) {
	t.Helper()
	for _, name := range names {
		p := ns.Running(name)
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount != 0 || p.DeletionTimestamp != nil {
				t.Errorf("pod %s was harmed: %+v", name, s)
			}
		}
	}
}

// condition waits until a version of the Node that isn't older than the given one has the condition, and returns that
// version. The watch shows also what was only for a moment, before the test got here.
func condition(t *testing.T, bed *kit.Bed, since *corev1.Node, kind corev1.NodeConditionType,
	want corev1.ConditionStatus,
) *corev1.Node {
	t.Helper()
	has := func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == kind &&
				c.Status == want
		})
	}
	if has(since) {
		return since
	}
	return kit.Follow(t, fmt.Sprintf("condition %s %s", kind, want), func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
			FieldSelector:   "metadata.name=" + kit.NodeName,
			ResourceVersion: since.ResourceVersion,
		})
	}, has)
}
