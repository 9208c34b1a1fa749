package parity

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
)

// inside is what every container is asked for that runs.
const inside = "cat /etc/hosts /etc/resolv.conf; hostname; cat /proc/1/oom_score_adj; stat -c %a /dev/termination-log"

// limits are the files of a pod's cgroup that are compared, of version 1 and 2.
var limits = []string{
	"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "pids.max", "hugetlb.2MB.limit_in_bytes",
	"cpu.weight", "cpu.max", "memory.max", "memory.oom.group",
}

// seen is what the node shows of a pod that isn't over: what the runtime was asked for, what its containers see, and the
// limits of its cgroup.
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
	ctx, runtime := t.Context(), bed.Containerd.Runtime()
	labels := map[string]string{"io.kubernetes.pod.uid": kit.NodeUID(p)}
	all := map[string]string{}
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.GetItems() {
		status, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
		if err == nil { // it may be gone by now
			keepNewest(all, "sandbox", s.GetMetadata().GetAttempt(), configOf(t, status.GetInfo()))
		}
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
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
			if by := map[string]string{"envs": "key", "mounts": "container_path", "hugepage_limits": "page_size"}[field]; by != "" {
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
	tree := regexp.MustCompile(`^/sys/fs/cgroup/[^/]*` + regexp.QuoteMeta(bed.Bed.CgroupRoot) + `|^/sys/fs/cgroup` + regexp.QuoteMeta(bed.Bed.CgroupRoot))
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
