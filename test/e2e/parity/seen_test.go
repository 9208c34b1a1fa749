package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// inside is what every container is asked for that runs.
const inside = "cat /etc/hosts /etc/resolv.conf; hostname; cat /proc/1/oom_score_adj; stat -c %a /dev/termination-log"

// limits are the files of a pod's cgroup that are compared, of version 1 and 2.
var limits = []string{
	"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "pids.max",
	"hugetlb.2MB.limit_in_bytes",
	"cpu.weight", "cpu.max", "memory.max", "memory.oom.group",
}

// seen is what the node shows of a pod that isn't over: what the runtime was asked for, what its containers see, and
// the limits of its cgroup.
func seen(t *testing.T, bed *kit.Bed, ns *kit.Namespace, p *corev1.Pod) string {
	t.Helper()
	var out strings.Builder
	configs := asked(t, bed, p)
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		fmt.Fprintf(&out, "runtime's %s:\n%s", name, configs[name])
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.State.Running == nil {
			continue
		}
		if text, err := ns.Try(p, s.Name, inside); err == nil {
			fmt.Fprintf(&out, "inside %s:\n%s\n", s.Name, text)
		}
	}
	return out.String() + "cgroup:\n" + cgroupLimits(t, bed, "pod"+kit.NodeUID(p))
}

// asked are the configurations that the agent gave the runtime for the pod's newest sandbox and containers.
func asked(t *testing.T, bed *kit.Bed, p *corev1.Pod) map[string]string {
	t.Helper()
	ctx, runtime := t.Context(), bed.CRI.Runtime()
	labels := map[string]string{"io.kubernetes.pod.uid": kit.NodeUID(p)}
	all := map[string]string{}
	sandboxes, err := runtime.ListPodSandbox(ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.GetItems() {
		status, err := runtime.PodSandboxStatus(ctx,
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
		if err == nil { // it may be gone by now
			keepNewest(all, "sandbox", s.GetMetadata().GetAttempt(), configOf(t, status.GetInfo()))
		}
	}
	containers, err := runtime.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.GetContainers() {
		status, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		if err == nil {
			keepNewest(all, "container "+c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), configOf(t, status.GetInfo()))
		}
	}
	return all
}

func keepNewest(all map[string]string, name string, attempt uint32, config string) {
	config = fmt.Sprintf("attempt: %d\n%s", attempt, config)
	all[name] = max(all[name], config)
}

// configOf is the configuration in the verbose answer of containerd, as YAML.
func configOf(t *testing.T, info map[string]string) string {
	t.Helper()
	var answer struct {
		Config map[string]any `json:"config"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &answer); err != nil {
		t.Fatal(err)
	}
	sortLists(answer.Config)
	out, err := yaml.Marshal(answer.Config)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// sortLists puts the lists in order whose order says nothing.
func sortLists(tree map[string]any) {
	for field, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			sortLists(v)
		case []any:
			if by := map[string]string{
				"envs": "key", "mounts": "container_path",
				"hugepage_limits": "page_size",
			}[field]; by != "" {
				slices.SortFunc(v, func(a, b any) int {
					return strings.Compare(fmt.Sprint(a.(map[string]any)[by]), fmt.Sprint(b.(map[string]any)[by]))
				})
			}
		}
	}
}

// cgroupLimits are the limits of the cgroup with that name, in each hierarchy that has it.
func cgroupLimits(t *testing.T, bed *kit.Bed, name string) string {
	t.Helper()
	tree := regexp.MustCompile(`^/sys/fs/cgroup/[^/]*` + regexp.QuoteMeta(bed.Bed.CgroupRoot) + `|^/sys/fs/cgroup` +
		regexp.QuoteMeta(bed.Bed.CgroupRoot))
	told := map[string]bool{}
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + bed.Bed.CgroupRoot)
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range append(roots, "/sys/fs/cgroup"+bed.Bed.CgroupRoot) {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || entry.Name() != name {
				return nil //nolint:nilerr // a cgroup that goes meanwhile isn't the one that is looked for
			}
			for _, file := range limits {
				if value, err := os.ReadFile(filepath.Join(path, file)); err == nil {
					told[fmt.Sprintf("%s/%s: %s\n", tree.ReplaceAllString(path, ""), file, strings.TrimSpace(string(value)))] = true
				}
			}
			return nil
		})
	}
	return strings.Join(slices.Sorted(maps.Keys(told)), "")
}

// unlimited is what the kubelet, and not kubelot, gives as the memory limit of a running pod that has none, once it has
// looked at the pod twice: with cgroup v1 the kernel's file has a number where there is no limit.
const unlimited = "9007199254740988Ki"

// unified reports whether the machine has cgroup v2 alone. Its CPU weight is coarser than what pods ask for: kubelot
// tells what the cgroup has at once, the kubelet when it looks at the pod again.
var unified = sync.OnceValue(func() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
})

// status is the pod's status as YAML, with times, addresses and IDs only as being there.
func (s *stage) status(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	if r := p.Status.Resources; r != nil && s.agent == node.Kubelet && r.Limits.Memory().String() == unlimited {
		p = p.DeepCopy()
		delete(p.Status.Resources.Limits, corev1.ResourceMemory)
	}
	if p.Status.Resources != nil && unified() {
		p = p.DeepCopy()
		delete(p.Status.Resources.Requests, corev1.ResourceCPU)
	}
	data, err := json.Marshal(p.Status)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	if list, ok := tree["conditions"].([]any); ok {
		slices.SortFunc(list, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["type"].(string), b.(map[string]any)["type"].(string))
		})
	}
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// notAgents tell of pods too; the node controllers if a busy machine's node was late.
var notAgents = []string{
	"default-scheduler", "node-controller", "taint-eviction-controller", "attachdetach-controller",
}

// events are the Events about the pod, each once.
func (s *stage) events(t *testing.T, name string) string {
	t.Helper()
	list, err := s.bed.Client.CoreV1().Events(s.ns.Name).List(context.Background(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, e := range list.Items {
		if slices.Contains(notAgents, e.Source.Component) || slices.Contains(notAgents, e.ReportingController) {
			continue
		}
		told[s.anonymous(fmt.Sprintf("%s %s %s (%s, %s): %s\n", e.Type, e.Reason, e.InvolvedObject.FieldPath,
			e.Source.Component, e.ReportingController, e.Message))] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(told)), "")
}

// nodeSeen is the Node object as YAML.
func nodeSeen(t *testing.T, bed *kit.Bed) string {
	t.Helper()
	n, err := bed.Client.CoreV1().Nodes().Get(context.Background(), kit.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.ManagedFields = nil
	// What was pulled shows with the agents' next report of the node, whenever that is.
	n.Status.Images = slices.DeleteFunc(n.Status.Images, func(i corev1.ContainerImage) bool {
		return len(i.Names) > 0 && strings.HasPrefix(i.Names[0], "127.0.0.1:")
	})
	out, err := yaml.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return anonymous(string(out), "none", bed.Bed.Dir) + cgroupLimits(t, bed, "kubepods")
}

var anonyms = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`containerd://[0-9a-f]{64}`), "CONTAINER"},
	{regexp.MustCompile(`(sha256:[0-9a-f]{8})[0-9a-f]{56}`), "$1"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "ID"},
	{regexp.MustCompile(`(\b|pod|_)[0-9a-f]{32}\b`), "${1}UID"}, // of a static pod
	{regexp.MustCompile(`host_id: \d+`), "host_id: N"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`in [0-9.hmµs]+ \([0-9.hmµs]+ including waiting\)`), "in DURATION"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-XXXXX"},
	{regexp.MustCompile(`(/containers/[a-z0-9-]+)/[a-z0-9]+\b`), "$1/LOG"},
	{regexp.MustCompile(`used: \d+`), "used: N"},
	{regexp.MustCompile(`resourceVersion: "?\d+"?`), "resourceVersion: N"},
	{regexp.MustCompile(`(ephemeral-storage|memory): "?\d{5,}(Ki)?"?`), "$1: N"}, // of the node
	{regexp.MustCompile(`Port: \d+`), "Port: N"},
}

func anonymous(text, namespace, dir string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, namespace, "NAMESPACE"), dir, "BED")
	for _, a := range anonyms {
		text = a.pattern.ReplaceAllString(text, a.name)
	}
	return text
}
