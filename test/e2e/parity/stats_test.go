package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// user is a pod that uses a little of everything that is measured.
const user = `apiVersion: v1
kind: Pod
metadata:
  name: user
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "head -c 3000000 /dev/zero > /data/file; head -c 2000000 /dev/zero > /file; while :; do echo hello; sleep 1; done"]
    resources: {limits: {memory: 64Mi, cpu: 500m}}
    volumeMounts: [{name: data, mountPath: /data}]
  - name: other
    image: busybox:1.36
    command: [sleep, "1000000"]
  volumes:
  - {name: data, emptyDir: {}}
`

// statsPages are the pages that are compared.
var statsPages = []string{
	"/stats/summary", "/stats/summary?only_cpu_and_memory=true", "/metrics/resource",
	"/metrics/cadvisor",
}

// TestSameStats compares which fields and metrics there are, for the same pod under either agent.
func TestSameStats(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	want := statsOf(t, bed, node.Kubelet, nil)
	got := statsOf(t, bed, node.Kubelot, want)
	if !showsAll(want, got) {
		// The kubelet may just have been late.
		want = statsOf(t, bed, node.Kubelet, got)
		if !showsAll(got, want) {
			// So may kubelot have been, before the kubelet showed more.
			got = statsOf(t, bed, node.Kubelot, want)
		}
	}
	for _, page := range statsPages {
		t.Run(strings.Trim(page, "/"), func(t *testing.T) {
			missing, more := lacks(page, got, want), lacks(page, want, got)
			for _, name := range missing {
				t.Errorf("- %s", name)
			}
			for _, name := range more {
				t.Errorf("+ %s", name)
			}
			t.Logf("%d of the kubelet's, %d of kubelot's; %d missing, %d more", len(want[page]), len(got[page]),
				len(missing), len(more))
		})
	}
}

// pages are the names of what is told, by page.
type pages map[string]map[string]bool

// lacks are the names on that page of all that aren't on those of shown and have to be, in order.
func lacks(page string, shown, all pages) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all[page])), func(name string) bool {
		return shown[page][name] || statsDifferences.find(page, name) != ""
	})
}

func showsAll(shown, all pages) bool {
	return !slices.ContainsFunc(statsPages, func(page string) bool { return len(lacks(page, shown, all)) > 0 })
}

// itsClocks is how long the kubelet takes, by clocks of its own, to look at pods, volumes and cgroups.
const itsClocks = 20 * time.Second

// until looks each second until it is enough, or for as long as a test waits.
func until(enough func() bool) {
	for deadline := time.Now().Add(kit.Patience); !enough() && time.Now().Before(deadline); {
		time.Sleep(time.Second)
	}
}

// differences are intended, each with its reason.
type differences []struct {
	page, name *regexp.Regexp
	reason     string
}

func (d differences) find(page, name string) string {
	for _, one := range d {
		if one.page.MatchString(page) && one.name.MatchString(name) {
			return one.reason
		}
	}
	return ""
}

var statsDifferences = differences{
	{
		regexp.MustCompile("summary"), regexp.MustCompile(`^(node\.systemContainers\[pods\]|pod)\.(cpu|memory|io)\.psi\.`),
		"cgroup v1 has no pressure figures; the kubelet shows zeros",
	},
	{
		regexp.MustCompile("summary"),
		regexp.MustCompile(`^pod\.containers\[other\]\.(memory\.availableBytes|swap\.swapAvailableBytes)$`),
		"0 where there is no limit would read as nothing left; the API's documentation wants it left out",
	},
	{
		regexp.MustCompile("resource"), regexp.MustCompile(`^container_swap_limit_bytes{container="other"`),
		"there is no limit",
	},
	{
		regexp.MustCompile("summary"), regexp.MustCompile(`^pod\.(network|process_stats)\.`),
		"the bed's containerd isn't where cAdvisor looks for one, and so it knows no sandbox",
	},
	{
		regexp.MustCompile("summary"), regexp.MustCompile(`^pod\.volume\[`),
		"the kubelet measures volumes a minute after the pod's start",
	},
	{regexp.MustCompile("cadvisor"), regexp.MustCompile("^container_network_.*{"), "as for the summary"},
	{
		regexp.MustCompile("cadvisor"),
		regexp.MustCompile("^container_(cpu_load_|tasks_state|health_state)"),
		"the kubelet shows zeros or nothing of use: nobody measures them there",
	},
	{
		regexp.MustCompile("cadvisor"), regexp.MustCompile("^container_(file_descriptors|sockets|ulimits_soft)"),
		"cAdvisor reads them process by process; see docs/parity.md",
	},
	{
		regexp.MustCompile("cadvisor"),
		regexp.MustCompile("^container_fs_(io_|read_seconds|reads_merged|sector_|write_seconds|writes_merged)"),
		"the kernel counts these for the scheduler CFQ only, which is gone; the kubelet shows zeros",
	},
	{
		regexp.MustCompile("cadvisor"), regexp.MustCompile("^machine_(cpu_books|cpu_drawers|nvm_|dimm_)"),
		"mainframes' parts and persistent memory",
	},
	{
		regexp.MustCompile("cadvisor"),
		regexp.MustCompile("^container_(blkio_device_usage_total|fs_(reads|writes)(_bytes)?_total){"),
		"only of containers that made a disk work, which is chance: the files may be in the page cache",
	},
	{
		regexp.MustCompile("cadvisor"), regexp.MustCompile("^container_pressure_"),
		"the node's, which the kernel tells on cgroup v1 too",
	},
}

// statsOf runs the pod under the agent and returns the names of what is told: as soon as all of these are, or what
// there is in the end.
func statsOf(t *testing.T, bed *kit.Bed, agent node.Agent, all pages) (found pages) {
	t.Helper()
	if err := bed.StartNode(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(user)
	ns.Wait("user", "running", kit.Ready)
	if agent == node.Kubelet {
		time.Sleep(itsClocks)
	}
	until(func() bool {
		now, err := statsNow(t, bed, agent, ns.Name)
		if err != nil {
			t.Logf("asked again: %v", err)
			return false
		}
		found = now
		return showsAll(found, all)
	})
	ns.Delete("user", 0)
	if err := bed.Node.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := bed.Client.CoreV1().Nodes().Delete(t.Context(), kit.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return found
}

// statsNow are the names that the agent tells now, of the node and the pods of the namespace. A kubelet that is still
// listing containers refuses to answer.
func statsNow(t *testing.T, bed *kit.Bed, agent node.Agent, namespace string) (pages, error) {
	t.Helper()
	found := pages{}
	for _, page := range statsPages {
		var data []byte
		var err error
		if agent == node.Kubelet {
			path, query, _ := strings.Cut(page, "?")
			request := bed.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + kit.NodeName + "/proxy" + path)
			if name, value, ok := strings.Cut(query, "="); ok {
				request = request.Param(name, value)
			}
			data, err = request.DoRaw(t.Context())
		} else {
			data = bed.Page(t, "stats", page)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", page, err, data)
		}
		if dir := os.Getenv("PARITY_DUMP"); dir != "" {
			file := fmt.Sprintf("%s/%s%s", dir, agent, strings.NewReplacer("/", "_", "?", "_").Replace(page))
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Error(err)
			}
		}
		if strings.HasPrefix(page, "/stats/") {
			found[page] = summaryNames(t, data, namespace)
		} else {
			found[page] = metricNames(data, namespace, page == "/metrics/resource")
		}
	}
	return found, nil
}

// summaryNames are the paths of the fields of the node and of the pod.
func summaryNames(t *testing.T, data []byte, namespace string) map[string]bool {
	t.Helper()
	var summary struct {
		Node any              `json:"node"`
		Pods []map[string]any `json:"pods"`
	}
	if err := json.Unmarshal(data, &summary); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	collect(names, "node", summary.Node)
	for _, pod := range summary.Pods {
		if ref, _ := pod["podRef"].(map[string]any); ref["namespace"] == namespace {
			collect(names, "pod", pod)
		}
	}
	return names
}

func collect(names map[string]bool, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			collect(names, path+"."+name, field)
		}
	case []any:
		for _, item := range v {
			element := ""
			if fields, ok := item.(map[string]any); ok {
				element, _ = fields["name"].(string)
			}
			switch {
			case strings.HasPrefix(element, "kube-api-access-"):
				element = "kube-api-access"
			case path == "node.network.interfaces" && element != "eth0":
				continue // of other beds on this machine
			}
			collect(names, path+"["+element+"]", item)
		}
	default:
		names[path] = true
	}
}

// metricNames are the families with their labels. Of cAdvisor's the labels' values are left out.
func metricNames(data []byte, namespace string, values bool) map[string]bool {
	names := map[string]bool{}
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if strings.HasPrefix(text, "#") || text == "" {
			continue
		}
		var name, labels string
		if at := strings.IndexByte(text, '{'); at >= 0 {
			name, labels = text[:at], text[at+1:strings.LastIndexByte(text, '}')]
		} else {
			name, _, _ = strings.Cut(text, " ")
		}
		if strings.Contains(labels, `namespace="e2e-`) && !strings.Contains(labels, namespace) {
			continue // of the other agent's pod, which is still there
		}
		pairs := pair.FindAllString(strings.ReplaceAll(labels, namespace, "NAMESPACE"), -1)
		if !values {
			for i := range pairs {
				pairs[i], _, _ = strings.Cut(pairs[i], "=")
			}
		}
		slices.Sort(pairs)
		names[name+"{"+strings.Join(pairs, ",")+"}"] = true
	}
	return names
}

var pair = regexp.MustCompile(`[A-Za-z_]+="[^"]*"`)
