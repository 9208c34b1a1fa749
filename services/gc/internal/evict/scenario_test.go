package evict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/scenariotest"
)

// epoch is the time 0s of scenarios.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata. "go test -rewrite" writes the results again; read the difference before you keep it.
//
//	thresholds [transition=D] [pods] [reload]    lines "hard|soft|grace|reclaim SIGNAL VALUE"; lists what they become. All
//	                                   figures go; the state stays with "reload"
//	restore at=T                       lines "CONDITION [relieved=T]": what an earlier process has stated
//	read at=T                          lines "SIGNAL AVAILABLE CAPACITY"; shows conditions and due thresholds
//	figures at=T                       lines "POD ...", as in usage: what is read then; "POD" alone: nothing
//	silent | answers                   stats answers no call, or does so again
//	gone POD                           it has ended
//	choose at=T [image]                what is done for the thresholds that are due, by the last figures
//	pod NAME [priority=N] [static] [idle]    a PodSpec in YAML, or nothing
//	usage NAME                         lines "memory N", "processes N", "volume NAME N", "ephemeral N", "CONTAINER memory|root|logs N [INODES]"
//	rank SIGNAL [image] [container]    the ranking, where images or containers have filesystems of their own
//	message NAME SIGNAL VALUE AVAILABLE CAPACITY    what an evicted pod is told, and the annotations of its Event
//	ending NAME grace=N deadline=T [static] [released] [LIFECYCLE]    podsync says that the pod ends, or has ended
//	underway at=T most=N               the evictions that gc finds under way when it starts, in its order
//	limits [image]                     who uses more local storage than it may
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{pods: map[string]*Candidate{}, ending: map[string]topic.Pod{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	tracker *Tracker
	pods    map[string]*Candidate
	ending  map[string]topic.Pod
	chooser
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{"at": "0s", "transition": "5m", "priority": "0"}
	var words []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			args[a.Key], words = "yes", append(words, a.Key)
			continue
		}
		args[a.Key] = a.Vals[0]
	}
	layout := Layout{ImageFS: args["image"] != "", ContainerFS: args["container"] != ""}
	switch d.Cmd {
	case "thresholds":
		return s.thresholds(t, d.Input, args)
	case "restore":
		s.tracker.Restore(restored(t, d.Input), at(t, args["at"]))
		return ""
	case "read":
		return s.read(t, d.Input, at(t, args["at"]))
	case "pod":
		s.pods[words[0]] = candidate(t, words[0], d.Input, args)
		return ""
	case "usage":
		s.pods[words[0]].Stats = usageOf(t, d.Input)
		return ""
	case "rank":
		return s.rank(Signal(words[0]), layout)
	case "message":
		th := Threshold{Signal: Signal(words[1]), Hard: true, Value: parsed(t, words[2])}
		o := Observation{Available: quantity(t, words[3]), Capacity: quantity(t, words[4])}
		message, annotations := Message(th, o, *s.pods[words[0]])
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			message += fmt.Sprintf("\n%s=%s", key, annotations[key])
		}
		return message + "\n"
	case "ending":
		s.ending[words[0]] = ending(t, words, args)
		return ""
	case "underway":
		return s.underway(t, args)
	case "limits":
		return s.limits(layout)
	case "figures", "silent", "answers", "gone", "choose":
		return s.figures(t, d, words, at(t, args["at"]), layout)
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (s *scenario) thresholds(t *testing.T, text string, args map[string]string) string {
	set := Settings{
		Hard: map[string]string{}, Soft: map[string]string{}, SoftGrace: map[string]string{},
		Reclaim: map[string]string{}, EnforcePods: args["pods"] != "",
	}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		map[string]map[string]string{
			"hard": set.Hard, "soft": set.Soft, "grace": set.SoftGrace,
			"reclaim": set.Reclaim,
		}[w[0]][w[1]] = w[2]
	}
	configured, err := Thresholds(set)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	for _, c := range s.pods {
		c.Stats = nil
	}
	s.chooser = newChooser()
	all, transition := ForLayout(configured, args["split"] != ""), at(t, args["transition"]).Sub(epoch)
	if args["reload"] == "" {
		s.tracker = NewTracker(all, transition)
	} else {
		s.tracker.SetThresholds(all)
		s.tracker.SetTransition(transition)
	}
	var out strings.Builder
	for _, th := range s.tracker.Thresholds() {
		fmt.Fprintf(&out, "%s grace=%s reclaim=%v\n", th, th.Grace, th.Reclaim != nil)
	}
	return out.String()
}

func restored(t *testing.T, text string) Pressure {
	p := Pressure{Under: map[corev1.NodeConditionType]bool{}, Relieved: map[corev1.NodeConditionType]time.Time{}}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		c := corev1.NodeConditionType(w[0])
		p.Under[c] = true
		if len(w) > 1 {
			p.Relieved[c] = at(t, strings.TrimPrefix(w[1], "relieved="))
		}
	}
	return p
}

func (s *scenario) read(t *testing.T, text string, now time.Time) string {
	obs := Observations{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		obs[Signal(w[0])] = Observation{Available: quantity(t, w[1]), Capacity: quantity(t, w[2]), At: now}
	}
	due, p := s.tracker.Update(obs, now)
	s.due, s.obs = due, obs
	var out strings.Builder
	for _, c := range conditions {
		if at, ok := p.Relieved[c]; ok {
			fmt.Fprintf(&out, "%s, relieved at %s\n", c, at.Sub(epoch))
		} else if p.Under[c] {
			fmt.Fprintln(&out, c)
		}
	}
	for _, th := range due {
		fmt.Fprintf(&out, "evict for %s\n", th)
	}
	if p.Message != "" {
		fmt.Fprintln(&out, p.Message)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func candidate(t *testing.T, name, text string, args map[string]string) *Candidate {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		t.Fatal(err)
	}
	n := int32(quantity(t, args["priority"]))
	p.Spec.Priority = &n
	return &Candidate{Pod: p, Static: args["static"] != "", Runs: args["idle"] == ""}
}

func usageOf(t *testing.T, text string) *statsv1alpha1.PodStats {
	u := func(text string) *uint64 { n := uint64(quantity(t, text)); return &n }
	s := &statsv1alpha1.PodStats{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch w[0] {
		case "memory":
			s.Memory = &statsv1alpha1.MemoryStats{WorkingSetBytes: u(w[1])}
			continue
		case "processes":
			s.ProcessStats = &statsv1alpha1.ProcessStats{ProcessCount: u(w[1])}
			continue
		case "ephemeral":
			s.EphemeralStorage = &statsv1alpha1.FsStats{UsedBytes: u(w[1])}
			continue
		case "volume":
			fs := statsv1alpha1.FsStats{UsedBytes: u(w[2])}
			if len(w) > 3 {
				fs.InodesUsed = u(w[3])
			}
			s.VolumeStats = append(s.VolumeStats, statsv1alpha1.VolumeStats{Name: w[1], FsStats: fs})
			continue
		}
		i := slices.IndexFunc(s.Containers, func(c statsv1alpha1.ContainerStats) bool { return c.Name == w[0] })
		if i < 0 {
			i = len(s.Containers)
			s.Containers = append(s.Containers, statsv1alpha1.ContainerStats{Name: w[0]})
		}
		fs := &statsv1alpha1.FsStats{UsedBytes: u(w[2])}
		if len(w) > 3 {
			fs.InodesUsed = u(w[3])
		}
		switch w[1] {
		case "memory":
			s.Containers[i].Memory = &statsv1alpha1.MemoryStats{WorkingSetBytes: u(w[2])}
		case "root":
			s.Containers[i].Rootfs = fs
		case "logs":
			s.Containers[i].Logs = fs
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return s
}

func (s *scenario) sorted() []Candidate {
	var all []Candidate
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		all = append(all, *s.pods[name])
	}
	return all
}

func (s *scenario) rank(signal Signal, l Layout) string {
	var out strings.Builder
	for _, r := range Rank(signal, l, s.sorted()) {
		fmt.Fprintf(&out, "%s exceeds=%v priority=%d usage=%s above=%s", r.Pod.Name, r.Exceeds, r.Priority,
			signal.quantity(r.Usage), signal.quantity(r.Above))
		if r.Critical() {
			out.WriteString(" critical")
		}
		out.WriteByte('\n')
	}
	what := Reclaims(signal, l)
	fmt.Fprintf(&out, "reclaim first: containers=%v images=%v\n", what.Containers, what.Images)
	return out.String()
}

func (s *scenario) limits(l Layout) string {
	var out strings.Builder
	for _, c := range s.sorted() {
		by, message := OverLimit(c, l)
		if by == "" {
			by = "no"
		}
		fmt.Fprintf(&out, "%s limited=%v over=%s %s\n", c.Pod.Name, LimitsStorage(c.Pod), by, message)
	}
	return strings.ReplaceAll(out.String(), " \n", "\n")
}

func at(t *testing.T, text string) time.Time {
	return epoch.Add(scenariotest.Duration(t, text))
}

func quantity(t *testing.T, text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatal(err)
	}
	return q.Value()
}

func parsed(t *testing.T, text string) Value {
	v, err := config.ParseEvictionValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return Value{v}
}

// What an earlier process has stated goes on by the clock that nobody sets: only a time that has its reading is
// compared by it.
func TestRestoredTimesOutliveAClockThatIsSet(t *testing.T) {
	now := time.Now()
	tracker := NewTracker(nil, time.Minute)
	at := now.Add(-30 * time.Second).Round(0) // as it comes from the bus
	tracker.Restore(Pressure{
		Under:    map[corev1.NodeConditionType]bool{corev1.NodeMemoryPressure: true},
		Relieved: map[corev1.NodeConditionType]time.Time{corev1.NodeMemoryPressure: at},
	}, now)
	_, p := tracker.Update(nil, now)
	if relieved := p.Relieved[corev1.NodeMemoryPressure]; !relieved.Equal(at) ||
		!strings.Contains(relieved.String(), " m=") {
		t.Errorf("relieved at %v, want %v with a monotonic reading", relieved, at)
	}
}
