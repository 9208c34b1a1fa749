package parity

import (
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

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// tellings is how often a story is told before what differs counts: a container may start or end just before a look or
// after it, under either agent. Each telling has fewer stories, and a calmer machine.
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
	w, err := s.bed.Client.CoreV1().Pods(s.ns.Name).Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=" + p.Name})
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

// curtain waits until nothing of the stories runs and their Events are written: both agents write them in their order,
// so an Event of one more pod comes after all the others.
func (s *stage) curtain(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the containers to be gone", func() error {
		list, err := s.bed.CRI.Runtime().ListContainers(t.Context(),
			&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
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
