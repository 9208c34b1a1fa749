package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/harness/node"
)

// tellings is how often a story is told before what differs counts: a container may start or end just before a look or after
// it, under either agent. Each telling has fewer stories, and a calmer machine.
const tellings = 3

// TestSameStory compares, story by story.
func TestSameStory(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	bed.Config = config
	stage := newStage(t, bed)
	left := chosen()
	differences := stage.compare(t, left)
	for told := 1; told < tellings; told++ {
		open := differing(differences)
		if open == "" {
			break
		}
		t.Logf("telling %d:%s", told, open)
		left = slices.DeleteFunc(left, func(s story) bool { return differences[s.name] == "" })
		maps.Copy(differences, stage.compare(t, left))
	}
	for _, name := range slices.Sorted(maps.Keys(differences)) {
		t.Run(name, func(t *testing.T) {
			if differences[name] != "" {
				t.Errorf("- kubelet, + kubelot\n%s", differences[name])
			}
		})
	}
	if os.Getenv("PARITY_STORIES") == "" {
		stage.needed.tell(t)
	}
}

// differing shows the stories that differ and how.
func differing(differences map[string]string) string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(differences)) {
		if differences[name] != "" {
			fmt.Fprintf(&all, "\n%s differs\n%s", name, differences[name])
		}
	}
	return all.String()
}

// compare tells the stories under both agents; of each, and of the node, it returns what differs and isn't intended.
func (s *stage) compare(t *testing.T, stories []story) map[string]string {
	t.Helper()
	want := s.tell(t, node.Kubelet, stories)
	got := s.tell(t, node.Kubelot, stories)
	dump(t, "kubelet", want)
	dump(t, "kubelot", got)
	differences := map[string]string{}
	for name := range want {
		differences[name] = s.needed.unintended(name, diff(want[name], got[name]))
	}
	return differences
}

// chosen are the stories whose names match PARITY_STORIES; all without it.
func chosen() []story {
	names := regexp.MustCompile(os.Getenv("PARITY_STORIES"))
	return slices.DeleteFunc(slices.Clone(stories), func(s story) bool { return !names.MatchString(s.name) })
}

// dump leaves what was compared where PARITY_DUMP says.
func dump(t *testing.T, agent string, told map[string]string) {
	dir := os.Getenv("PARITY_DUMP")
	if dir == "" {
		return
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(told)) {
		fmt.Fprintf(&all, "##### %s\n%s", name, told[name])
	}
	if err := os.WriteFile(dir+"/"+agent, []byte(all.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// slow is how long a story takes of which the log tells; crowd is how many are played at a time.
const (
	slow  = 50 * time.Second
	crowd = 40
)

// tell runs the stories under the agent and returns what was seen of each, and of the node.
func (s *stage) tell(t *testing.T, agent node.Agent, stories []story) map[string]string {
	t.Helper()
	if err := s.bed.StartNode(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	s.agent = agent
	s.set(t)
	told, pods := map[string]string{}, map[string]*corev1.Pod{}
	var lock sync.Mutex
	var waits sync.WaitGroup
	places := make(chan struct{}, crowd)
	for _, story := range stories {
		// Side by side: the state of a container that crashes changes every few seconds.
		waits.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			began := time.Now()
			p, text := s.play(t, story)
			if took := time.Since(began).Round(time.Second); took > slow {
				t.Logf("%s: %s took %v", agent, story.name, took)
			}
			text += s.end(t, story, p)
			lock.Lock()
			defer lock.Unlock()
			pods[story.name], told[story.name] = p, s.anonymous(text)
		})
	}
	waits.Wait()
	if t.Failed() {
		t.FailNow()
	}
	others(t, s.bed, s.ns, pods)
	s.curtain(t)
	for name, p := range pods {
		told[name] += "events:\n" + s.events(t, p.Name)
	}
	told["node"] = nodeSeen(t, s.bed)
	s.strike(t)
	return told
}

// end deletes the story's pod, and tells of its end where that is to be compared.
func (s *stage) end(t *testing.T, y story, p *corev1.Pod) string {
	t.Helper()
	w, err := s.bed.Client.CoreV1().Pods(s.ns.Name).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.Name})
	if err != nil {
		t.Error(err)
		return ""
	}
	defer w.Stop()
	if y.end {
		s.heeds(p)
	}
	if y.static {
		if err := os.Remove(s.manifestPath(y.name)); err != nil {
			t.Error(err)
		}
	} else {
		s.ns.Delete(p.Name, -1)
	}
	s.ns.Gone(p)
	for event := range w.ResultChan() {
		if last, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted && y.end {
			return "last status:\n" + s.status(t, last)
		}
		if event.Type == watch.Deleted {
			break
		}
	}
	return ""
}

// curtain waits until nothing of the stories runs and their Events are written: both agents write them in their order, so an
// Event of one more pod comes after all the others.
func (s *stage) curtain(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the containers to be gone", func() error {
		list, err := s.bed.Containerd.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.namespace": s.ns.Name},
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
		if err == nil && len(list.GetContainers()) > 0 {
			err = fmt.Errorf("these run: %v", list.GetContainers())
		}
		return err
	})
	s.ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: curtain}\nspec:\n" + app(forever))
	s.ns.Event("curtain", "Started", "")
	p := s.ns.Running("curtain")
	s.ns.Delete(p.Name, 1)
	s.ns.Gone(p)
}

// others deletes the pods that stories have brought along, and waits.
func others(t *testing.T, bed *kit.Bed, ns *kit.Namespace, pods map[string]*corev1.Pod) {
	t.Helper()
	list, err := bed.Client.CoreV1().Pods(ns.Name).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if !slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(of *corev1.Pod) bool { return of.Name == p.Name }) {
			ns.Delete(p.Name, -1)
			ns.Gone(p)
		}
	}
}

// unlimited is what the kubelet, and not kubelot, gives as the memory limit of a running pod that has none, once it has looked at
// the pod twice: with cgroup v1 the kernel's file has a number where there is no limit.
const unlimited = "9007199254740988Ki"

// unified tells whether the machine has cgroup v2 alone. Its CPU weight is coarser than what pods ask for: kubelot tells what the cgroup
// has at once, the kubelet when it looks at the pod again.
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

// notAgents tell of pods too; the last two if a busy machine's node was late.
var notAgents = []string{"default-scheduler", "node-controller", "taint-eviction-controller"}

// events are the Events about the pod, each once.
func (s *stage) events(t *testing.T, name string) string {
	t.Helper()
	list, err := s.bed.Client.CoreV1().Events(s.ns.Name).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, e := range list.Items {
		if slices.Contains(notAgents, e.Source.Component) || slices.Contains(notAgents, e.ReportingController) {
			continue
		}
		told[s.anonymous(fmt.Sprintf("%s %s %s (%s, %s): %s\n", e.Type, e.Reason, e.InvolvedObject.FieldPath, e.Source.Component, e.ReportingController, e.Message))] = true
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

// excuses are the intended differences that lines were excused by, with the stories of those lines.
type excuses map[difference]map[string]bool

// unintended are the lines that no difference in the lists accounts for.
func (e excuses) unintended(story string, lines []string) string {
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		excused := slices.ContainsFunc(races, func(d difference) bool { return d.covers(story, line) })
		for _, d := range intended {
			if d.covers(story, line) {
				if e[d] == nil {
					e[d] = map[string]bool{}
				}
				e[d][story], excused = true, true
			}
		}
		return excused
	}), "\n")
}

// covers tells whether the line of the story may differ.
func (d difference) covers(story, line string) bool {
	return (d.stories == "" || slices.Contains(strings.Split(d.stories, "|"), story)) && regexp.MustCompile(d.line).MatchString(line)
}

// tell names the intended differences that no story showed: they may be there no more, or the timing was kind.
func (e excuses) tell(t *testing.T) {
	t.Helper()
	for _, d := range intended {
		if len(e[d]) == 0 {
			t.Logf("%s: nothing differs (any more) by %s: %s", d.stories, d.line, d.reason)
			continue
		}
		for name := range strings.SplitSeq(d.stories, "|") {
			if !e[d][name] {
				t.Logf("%s didn't differ by %s: %s", name, d.line, d.reason)
			}
		}
	}
}

// diff are the lines that differ, with what one has to take away and to add.
func diff(want, got string) []string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// The longest common subsequence, from the end.
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
