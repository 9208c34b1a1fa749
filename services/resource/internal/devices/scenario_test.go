package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin is when a scenario begins.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata. "go test -rewrite" writes the results again; read the difference before you keep it.
// Times are durations since the start. Names of resources stand for those of vendor.example.
//
//	adopt     lines "pod POD CONTAINER RESOURCE NODE=ID,ID ... ANSWER", "resource NAME"
//	listed    words: the resource; lines "ID [sick] [NODE ...]"; says which pods have changed
//	away      words: the resource, at=T
//	pod       words: its UID; lines "init|sidecar|main NAME [RESOURCE=N ...] [claimed=RESOURCE]"
//	needs     words: the pod's UID
//	pick      words: pod, container, resource, [near=NODE,NODE]
//	keep      as pick, with [prefer=ID,ID]
//	confirm   words: pod, container, resource; the answer is its text
//	drop      words: pod, container, resource
//	release   words: the pod
//	assigned  words: the pod
//	hints     words: the pod, the container or *, machine=NODE,NODE
//	capacity  at=T; expire at=T; settled at=T; waiting RESOURCE at=T; wake; export; allocatable
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{book: New(), pods: map[string]*corev1.Pod{}, kept: map[string]*Reservation{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	book *Book
	pods map[string]*corev1.Pod
	kept map[string]*Reservation
}

// args are the words of a command that have no value, and the values of the others.
func args(d *datadriven.TestData) (words []string, values map[string][]string) {
	values = map[string][]string{}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
			continue
		}
		values[a.Key] = strings.Split(strings.Join(a.Vals, ","), ",")
	}
	return words, values
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	words, values := args(d)
	now := begin
	if at := values["at"]; at != nil {
		now = begin.Add(scenariotest.Duration(t, at[0]))
	}
	switch d.Cmd {
	case "adopt":
		s.book.Adopt(parseCheckpoint(t, d.Input))
	case "listed":
		return lines(s.book.Listed(full(words[0]), parseDevices(t, d.Input)))
	case "away":
		s.book.Away(full(words[0]), now)
	case "pod":
		s.pods[words[0]] = parsePod(t, words[0], d.Input)
	case "release":
		return fmt.Sprintln(s.book.Release(words[0]))
	case "capacity":
		return showCapacity(s.book.Capacity(now))
	case "expire":
		return lines(s.book.Expire(now))
	case "settled":
		s.book.Settled(now)
	case "waiting":
		until, waiting := s.book.Waiting(full(words[0]), now)
		if until.IsZero() {
			return fmt.Sprintln(waiting)
		}
		return fmt.Sprintln(waiting, until.Sub(begin))
	case "wake":
		return fmt.Sprintln(s.book.WakeAt().Sub(begin))
	case "export":
		return showCheckpoint(s.book.Export())
	default:
		return s.runPod(t, d, words, values)
	}
	return ""
}

// runPod runs a command about a pod.
func (s *scenario) runPod(t *testing.T, d *datadriven.TestData, words []string, values map[string][]string) string {
	var b strings.Builder
	switch d.Cmd {
	case "needs":
		for _, n := range s.book.Needs(s.pods[words[0]]) {
			fmt.Fprintln(&b, n.Container, n.Resource, n.Count)
		}
	case "pick":
		c, err := s.book.pick(s.request(t, words, values))
		if err != nil {
			return fmt.Sprintln("refused:", err)
		}
		return fmt.Sprintf("fixed %v among %v size %d open %v\n", c.Fixed, c.Among, c.Size, c.Open())
	case "keep":
		r := s.book.Reserve()
		switch err := r.keep(s.request(t, words, values), values["prefer"]); {
		case err != nil:
			return fmt.Sprintln("refused:", err)
		case r.Next() == "":
			return "nothing to do\n"
		}
		s.kept[strings.Join(words, " ")] = r
		return fmt.Sprintln(r.kept[0].ids)
	case "confirm":
		return fmt.Sprintln(s.kept[strings.Join(words, " ")].Confirm([]byte(d.Input)))
	case "drop":
		s.kept[strings.Join(words, " ")].Drop()
	case "assigned":
		all := s.book.Assigned(words[0])
		for _, container := range slices.Sorted(maps.Keys(all)) {
			for _, a := range all[container] {
				fmt.Fprintln(&b, container, a.Resource, a.ID, a.Healthy, a.Nodes)
			}
			for _, a := range s.book.Answers(words[0], container) {
				fmt.Fprintf(&b, "%s %s %q\n", container, a.Resource, a.Response)
			}
		}
	case "hints":
		machine := ints(t, values["machine"])
		if words[1] == "*" {
			return showHints(s.book.PodHints(s.pods[words[0]], machine))
		}
		return showHints(s.book.Hints(s.pods[words[0]], words[1], machine))
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return b.String()
}

// request is one for what the pod's container wants of the resource.
func (s *scenario) request(t *testing.T, words []string, values map[string][]string) Request {
	q := Request{Pod: s.pods[words[0]], Need: Need{Container: words[1], Resource: full(words[2])}}
	for c := range containers(q.Pod) {
		if limit, ok := c.Resources.Limits[corev1.ResourceName(q.Resource)]; ok && c.Name == q.Container {
			q.Count = int(limit.Value())
		}
	}
	q.Affinity = ints(t, values["near"])
	return q
}

func full(name string) string { return "vendor.example/" + name }

func ints(t *testing.T, texts []string) (list []int) {
	for _, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func lines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}

func parseDevices(t *testing.T, input string) (list []Device) {
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		d := Device{ID: words[0], Healthy: true}
		for _, word := range words[1:] {
			if word == "sick" {
				d.Healthy = false
				continue
			}
			d.Nodes = append(d.Nodes, ints(t, []string{word})...)
		}
		list = append(list, d)
	}
	return list
}

func parsePod(t *testing.T, uid, input string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	always := corev1.ContainerRestartPolicyAlways
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		c := corev1.Container{Name: words[1]}
		c.Resources.Limits = corev1.ResourceList{}
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			if name == "claimed" {
				pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
					RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: c.Name, ResourceName: full(value)}},
				}
				continue
			}
			c.Resources.Limits[corev1.ResourceName(full(name))] = resource.MustParse(value)
		}
		switch words[0] {
		case "main":
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			continue
		case "sidecar":
			c.RestartPolicy = &always
		case "init":
		default:
			t.Fatalf("unknown kind of container %q", words[0])
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

func parseCheckpoint(t *testing.T, input string) Checkpoint {
	c := Checkpoint{RegisteredDevices: map[string][]string{}}
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		if words[0] == "resource" {
			c.RegisteredDevices[full(words[1])] = []string{}
			continue
		}
		e := Entry{
			PodUID: words[1], ContainerName: words[2], ResourceName: full(words[3]), DeviceIDs: map[int64][]string{},
			AllocResp: []byte(words[len(words)-1]),
		}
		for _, word := range words[4 : len(words)-1] {
			node, ids, _ := strings.Cut(word, "=")
			e.DeviceIDs[int64(ints(t, []string{node})[0])] = strings.Split(ids, ",")
		}
		c.PodDeviceEntries = append(c.PodDeviceEntries, e)
	}
	return c
}

func showCapacity(c Capacity) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Devices)) {
		fmt.Fprintln(&b, name, c.Devices[name].Capacity, c.Devices[name].Allocatable)
	}
	for _, name := range c.Gone {
		fmt.Fprintln(&b, name, "gone")
	}
	return b.String()
}

func showCheckpoint(c Checkpoint) string {
	var b strings.Builder
	for _, e := range c.PodDeviceEntries {
		fmt.Fprintf(&b, "%s %s %s %v %q\n", e.PodUID, e.ContainerName, e.ResourceName, e.DeviceIDs, e.AllocResp)
	}
	for _, name := range slices.Sorted(maps.Keys(c.RegisteredDevices)) {
		fmt.Fprintln(&b, name, c.RegisteredDevices[name])
	}
	return b.String()
}

func showHints(hints map[string][]Hint) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		switch list := hints[name]; {
		case list == nil:
			fmt.Fprintln(&b, name, "any")
		case len(list) == 0:
			fmt.Fprintln(&b, name, "impossible")
		default:
			fmt.Fprint(&b, name)
			for _, h := range list {
				fmt.Fprintf(&b, " %v", h.Nodes)
				if h.Preferred {
					fmt.Fprint(&b, "!")
				}
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
