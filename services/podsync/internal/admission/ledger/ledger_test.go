package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admission"
)

var (
	now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// soon is when a promise ends that was made before now, past one that has ended.
	soon, past = now.Add(20 * time.Second), now.Add(-time.Second)
)

// pod asks for so much CPU; its UID is its name.
func pod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			},
		}}},
	}
}

// critical is the pod with the priority of those that the cluster can't do without.
func critical(p *corev1.Pod) *corev1.Pod {
	priority := int32(2000000000)
	p.Spec.Priority = &priority
	return p
}

// graceful is the pod with a grace period, in seconds.
func graceful(p *corev1.Pod, seconds int64) *corev1.Pod {
	p.Spec.TerminationGracePeriodSeconds = &seconds
	return p
}

// works is a pod that runs, changed.
func works(p *corev1.Pod, change ...func(*Pod)) Pod {
	there := Pod{Held: admission.Hold(p), Admitted: true}
	for _, f := range change {
		f(&there)
	}
	return there
}

func yields(until time.Time) func(*Pod) { return func(p *Pod) { p.Yields = until } }
func over(p *Pod)                       { p.Over = true }
func waits(p *Pod)                      { p.Waits = true }
func refused(p *Pod)                    { p.Admitted = false }

// onTwoCPUs is a node with two CPUs and these pods.
func onTwoCPUs(pods []Pod, former []Former) *Ledger {
	return &Ledger{
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("110"),
			}},
		},
		Facts: admission.Facts{OS: "linux", Arch: "amd64"},
		Grace: func(p *corev1.Pod) time.Duration {
			if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
				return time.Duration(*s) * time.Second
			}
			return 30 * time.Second
		},
		Pods: pods, Former: former,
	}
}

// answer is a decision in a form that can be compared: the reason of a refusal, and the ends with the seconds for which
// they are waited for. The order of others' ends doesn't matter.
type answer struct {
	refused, lacks  string
	victims, awaits []string
}

func (a answer) String() string {
	return fmt.Sprintf("refused %q, lacks %q, victims %v, awaits %v", a.refused, a.lacks, a.victims, a.awaits)
}

func answerOf(d Decision) answer {
	a := answer{lacks: d.Lacks, victims: ends(d.Victims), awaits: ends(d.Awaits)}
	if d.Refused != nil {
		a.refused = d.Refused.Reason
	}
	return a
}

func ends(list []End) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b End) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
	var texts []string
	for _, e := range list {
		texts = append(texts, fmt.Sprintf("%s %d", e.Pod.Name, int(e.Until.Sub(now).Seconds())))
	}
	return texts
}

type judgement struct {
	intent string
	pods   []Pod
	former []Former
	claim  Claim
	want   answer
}

func judge(t *testing.T, cases []judgement) {
	t.Helper()
	for _, c := range cases {
		if got := answerOf(onTwoCPUs(c.pods, c.former).Judge(c.claim, now)); got.String() != c.want.String() {
			t.Errorf("%s\n got %s\nwant %s", c.intent, got, c.want)
		}
	}
}

const noCPU = "OutOfcpu"

func TestWhoHoldsWhatOfTheNode(t *testing.T) {
	large := Claim{Pod: pod("new", "1500m")}
	judge(t, []judgement{
		{intent: "An empty node takes a pod, which waits for nothing.", claim: large},
		{
			intent: "A pod that runs holds what it asks for.",
			pods:   []Pod{works(pod("a", "1"))}, claim: large, want: answer{refused: noCPU},
		},
		{
			intent: "A pod that has ended holds nothing.",
			pods:   []Pod{works(pod("a", "1"), over)}, claim: large,
		},
		{
			intent: "A pod that was refused holds nothing.",
			pods:   []Pod{works(pod("a", "1"), refused)}, claim: large,
		},
		{
			intent: "The place of a pod that is promised to another doesn't count, only its end is waited for.",
			pods:   []Pod{works(pod("a", "1"), yields(soon))}, claim: large, want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "A pod that hasn't ended in the time that it was promised for isn't counted or waited for any more.",
			pods:   []Pod{works(pod("a", "1"), yields(past))}, claim: large,
		},
		{
			intent: "A pod that waits for room holds its place against others that come.",
			pods:   []Pod{works(pod("a", "1"), waits)}, claim: large, want: answer{refused: noCPU},
		},
		{
			intent: "A pod that grows isn't counted beside itself.",
			pods:   []Pod{works(pod("new", "1"))}, claim: large,
		},
		{
			intent: "A pod that was admitted before is never refused.",
			pods:   []Pod{works(pod("a", "1"))}, claim: Claim{Pod: pod("new", "1500m"), Granted: true},
		},
	})
}

func TestWhoHoldsWhatAfterARestart(t *testing.T) {
	for _, c := range []struct {
		intent string
		former Former
		counts bool
	}{
		{"A pod that runs and is wanted counts.", Former{Wanted: true, Runs: true}, true},
		{
			"A pod that is wanted and was to begin counts, though it has no containers yet.",
			Former{Wanted: true, Begins: true},
			true,
		},
		{"A pod that is wanted, had ended and was not to begin doesn't count.", Former{Wanted: true, FromAPI: true}, false},
		{
			"A static pod that runs counts while its source is silent.",
			Former{Silent: true, Runs: true},
			true,
		},
		{
			"A static pod that was to begin counts while its source is silent.",
			Former{Silent: true, Begins: true},
			true,
		},
		{
			"A static pod that its source has dropped doesn't count, though it runs: its successor may have its place.",
			Former{Runs: true, Begins: true},
			false,
		},
		{
			"A pod of the API server that runs counts until it is ended, though nobody wants it any more.",
			Former{FromAPI: true, Runs: true},
			true,
		},
		{
			"A pod of the API server that nobody wants and that doesn't run doesn't count, whatever was to begin.",
			Former{FromAPI: true, Begins: true},
			false,
		},
	} {
		c.former.Pod = pod("a", "1")
		want := answer{}
		if c.counts {
			want.refused = noCPU
		}
		judge(t, []judgement{{
			intent: c.intent, former: []Former{c.former}, claim: Claim{Pod: pod("new", "1500m")},
			want: want,
		}})
	}
}

func TestWhoMustEnd(t *testing.T) {
	urgent := Claim{Pod: critical(pod("urgent", "1500m"))}
	judge(t, []judgement{
		{
			intent: "A critical pod waits for the end of its victim, for its grace period of 30 s and half of that again.",
			pods:   []Pod{works(pod("a", "1"))}, claim: urgent,
			want: answer{lacks: "cpu", victims: []string{"a 45"}, awaits: []string{"a 45"}},
		},
		{
			intent: "A victim with a short grace period is waited for 10 s, which a runtime may need.",
			pods:   []Pod{works(graceful(pod("a", "1"), 1))}, claim: urgent,
			want: answer{lacks: "cpu", victims: []string{"a 10"}, awaits: []string{"a 10"}},
		},
		{
			intent: "A pod of an earlier run may be the victim before it has a worker.",
			former: []Former{{Pod: graceful(pod("a", "1"), 60), Silent: true, FromAPI: true, Runs: true}}, claim: urgent,
			want: answer{lacks: "cpu", victims: []string{"a 90"}, awaits: []string{"a 90"}},
		},
		{
			intent: "A critical pod is refused, and nobody is ended, where the ends of all that may go don't suffice.",
			pods:   []Pod{works(critical(pod("a", "1"))), works(pod("b", "400m"))}, claim: urgent,
			want: answer{refused: noCPU},
		},
		{
			intent: "A pod that isn't critical has no victims.",
			pods:   []Pod{works(pod("a", "1"))}, claim: Claim{Pod: pod("new", "1500m")}, want: answer{refused: noCPU},
		},
		{
			intent: "A pod whose place is promised is nobody's victim a second time.",
			pods:   []Pod{works(pod("a", "1"), yields(soon)), works(critical(pod("b", "500m")))}, claim: urgent,
			want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "A critical pod that was admitted before ends nobody.",
			pods:   []Pod{works(pod("a", "1"))}, claim: Claim{Pod: urgent.Pod, Granted: true},
		},
	})
}

// Of several pods that end the pod waits for those that it doesn't fit beside, the soonest ones.
func TestNobodyWaitsForMoreEndsThanItNeeds(t *testing.T) {
	late := yields(now.Add(time.Hour))
	judge(t, []judgement{
		{
			intent: "It fits beside the one that takes longest.",
			pods:   []Pod{works(pod("a", "500m"), late), works(pod("b", "1500m"), yields(soon))},
			claim:  Claim{Pod: pod("new", "1")}, want: answer{awaits: []string{"b 20"}},
		},
		{
			intent: "It needs both places.",
			pods:   []Pod{works(pod("a", "500m"), late), works(pod("b", "1500m"), yields(soon))},
			claim:  Claim{Pod: pod("new", "1700m")}, want: answer{awaits: []string{"a 3600", "b 20"}},
		},
		{
			intent: "Beside the one that takes longest another will run, which waits for the soonest end only.",
			pods: []Pod{
				works(pod("a", "600m"), late), works(pod("b", "800m"), yields(soon)),
				works(pod("other", "1"), waits, func(p *Pod) { p.Beside = true }),
			},
			claim: Claim{Pod: pod("new", "600m")}, want: answer{awaits: []string{"a 3600", "b 20"}},
		},
		{
			intent: "It lacks a port and a resource.",
			pods:   []Pod{works(withPort(pod("a", "1500m")), yields(soon))},
			claim:  Claim{Pod: withPort(pod("new", "1"))}, want: answer{awaits: []string{"a 20"}},
		},
	})
}

func TestWhoseEndIsAwaited(t *testing.T) {
	small := Claim{Pod: pod("new", "500m")}
	judge(t, []judgement{
		{
			intent: "A new pod that doesn't fit beside the victims of others waits for them too.",
			pods:   []Pod{works(pod("a", "1900m"), yields(soon)), works(critical(pod("urgent", "1")), waits)},
			claim:  small, want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "A new pod that fits beside the victims of others waits for nobody.",
			pods:   []Pod{works(pod("a", "1500m"), yields(soon))}, claim: small,
		},
		{
			intent: "Pods that wait for room themselves don't occupy any: a pod that fits without them waits for nobody.",
			pods:   []Pod{works(pod("a", "1"), yields(soon)), works(critical(pod("urgent", "1500m")), waits)}, claim: small,
		},
		{
			intent: "Pods that run occupy room, so beside them a pod waits for the victims of others.",
			pods:   []Pod{works(pod("a", "1"), yields(soon)), works(pod("b", "1"))}, claim: small,
			want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "Pods of an earlier run without a worker occupy room too.",
			pods:   []Pod{works(pod("a", "1"), yields(soon))}, former: []Former{{Pod: pod("b", "1"), Wanted: true, Runs: true}},
			claim: small, want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "A victim of others that has ended, or has had its time, isn't waited for.",
			pods:   []Pod{works(pod("a", "2"), yields(soon), over), works(pod("b", "2"), yields(past))}, claim: small,
		},
		{
			intent: "A critical pod waits for its own victim, and for those of others where it doesn't fit beside them.",
			pods:   []Pod{works(pod("a", "1"), yields(soon)), works(pod("b", "1"))},
			claim:  Claim{Pod: critical(pod("urgent", "1500m"))},
			want:   answer{lacks: "cpu", victims: []string{"b 45"}, awaits: []string{"a 20", "b 45"}},
		},
		{
			intent: "A critical pod waits for its own victim alone where it fits beside those of others.",
			pods:   []Pod{works(pod("a", "500m"), yields(soon)), works(pod("b", "1"))},
			claim:  Claim{Pod: critical(pod("urgent", "1500m"))},
			want:   answer{lacks: "cpu", victims: []string{"b 45"}, awaits: []string{"b 45"}},
		},
		{
			intent: "A pod that was admitted before a restart waits for the pods that still end for it.",
			pods:   []Pod{works(pod("a", "1"), yields(soon))},
			claim:  Claim{Pod: critical(pod("urgent", "1500m")), Granted: true}, want: answer{awaits: []string{"a 20"}},
		},
		{
			intent: "A pod that was admitted and that the node isn't fit for any more waits for no end, as none would help.",
			pods:   []Pod{works(pod("a", "2"), yields(soon))}, claim: Claim{Pod: elsewhere(small.Pod), Granted: true},
		},
	})
}

// withPort is the pod with a port of the node.
func withPort(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
	return p
}

// elsewhere is the pod for nodes with a label that this one lacks.
func elsewhere(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeSelector = map[string]string{"disk": "fast"}
	return p
}

func TestTheWaitGoesOnAfterARestart(t *testing.T) {
	began := func(ago, grace int64) *topic.Pod {
		end := now.Add(time.Duration(grace-ago) * time.Second)
		return &topic.Pod{GracePeriodSeconds: &grace, Deadline: &end}
	}
	for _, c := range []struct {
		intent  string
		before  *topic.Pod
		seconds int // from now, of a pod with a grace period of 30 s
	}{
		{"A wait of 45 s that has just begun.", began(0, 30), 45},
		{"20 s of it are over.", began(20, 30), 25},
		{"All of it is over.", began(60, 30), -15},
		{"The grace period was shortened, and so is the wait.", began(2, 10), 13},
		{"A runtime has 10 s at least.", began(2, 0), 8},
		{"The bus hasn't heard that the pod ends.", &topic.Pod{}, 45},
		{"The clock was set back by a day.", began(-24*60*60, 30), 45},
	} {
		if got := Promised(c.before, 30*time.Second, now).Sub(now); got != time.Duration(c.seconds)*time.Second {
			t.Errorf("%s: waited for %s, want %d s", c.intent, got, c.seconds)
		}
	}
}
