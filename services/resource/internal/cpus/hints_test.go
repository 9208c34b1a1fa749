package cpus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// text is hints as one line: the nodes of each, + for a preferred one.
func text(h numa.ProviderHints) string {
	if h == nil {
		return "any"
	}
	var list []string
	for _, hint := range h[string(corev1.ResourceCPU)] {
		mark := ""
		if hint.Preferred {
			mark = "+"
		}
		list = append(list, hint.Nodes.String()+mark)
	}
	return strings.Join(list, " ")
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine machine.Topology
		options []string
		// before are the CPUs that others have; had are the containers of the pod that are allocated already.
		before string
		had    int
		pod    *corev1.Pod
		// want are the hints of the first container that isn't allocated yet, or else of the last, and those of the pod.
		want, wantPod string
	}{
		{
			name: "one node is enough", machine: grid(2, 1, 4, 1), pod: pod("a", "app=3"),
			want: "0+ 1+ 0-1", wantPod: "0+ 1+ 0-1",
		},
		{
			name:    "the reserved CPU counts for what an empty machine could do",
			machine: grid(2, 1, 4, 1), pod: pod("a", "app=4"), want: "1+ 0-1", wantPod: "1+ 0-1",
		},
		{name: "two nodes", machine: grid(2, 1, 4, 1), pod: pod("a", "app=5"), want: "0-1+", wantPod: "0-1+"},
		{name: "too many", machine: grid(2, 1, 4, 1), pod: pod("a", "app=8"), want: "", wantPod: ""},
		{
			name: "no node has enough now", machine: grid(2, 1, 4, 1), before: "1-2,4-5", pod: pod("a", "app=3"),
			want: "0-1", wantPod: "0-1",
		},
		{
			name: "what it has already", machine: grid(2, 1, 4, 1), had: 1, pod: pod("a", "app=3"),
			want: "0+ 0-1", wantPod: "0+ 0-1",
		},
		{
			name: "what its init container leaves", machine: grid(2, 1, 4, 1), had: 1, pod: pod("a", "init=2", "app=3"),
			want: "0+ 0-1", wantPod: "0+ 0-1",
		},
		{
			name: "two containers, the first has its CPUs", machine: grid(2, 1, 4, 1), had: 1, pod: pod("a", "app0=2", "app1=2"),
			want: "1+ 0-1", wantPod: "0-1",
		},
		{name: "nothing alone", machine: grid(2, 1, 4, 1), pod: pod("a", "app=1500m"), want: "any", wantPod: "any"},
		{
			name: "whole cores only", machine: grid(2, 1, 2, 2), options: []string{optionFullCores}, pod: pod("a", "app=2"),
			before: "1,3", want: "1+ 0-1", wantPod: "1+ 0-1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := static(t, c.machine, "0", c.options...)
			if c.before != "" {
				s.Adopt(PolicyStatic, Entries{"other": {"app": set(t, c.before)}})
			}
			var next *corev1.Container
			for container := range podspec.InitAndMain(&c.pod.Spec) {
				next = container
				if c.had--; c.had < 0 {
					break
				}
				if _, err := s.Allocate(c.pod, container, 0); err != nil {
					t.Fatal(err)
				}
			}
			if got := text(s.Hints(c.pod, next)); got != c.want {
				t.Errorf("%s: hints %q, want %q", next.Name, got, c.want)
			}
			if got := text(s.PodHints(c.pod)); got != c.wantPod {
				t.Errorf("hints of the pod %q, want %q", got, c.wantPod)
			}
		})
	}
}

// With align-by-socket, sets of several nodes are preferred as well if they are all of as few sockets as needed.
func TestHintsOfSockets(t *testing.T) {
	p := pod("a", "app=2")
	s := static(t, grid(2, 2, 2, 1), "0", optionAlignSocket)
	if got, want := text(s.Hints(p, &p.Spec.Containers[0])),
		"1+ 2+ 3+ 0-1+ 0,2 0,3 1-2 1,3 2-3+ 0-2 0-1,3 0,2-3 1-3 0-3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s = static(t, grid(2, 2, 2, 1), "0")
	if got, want := text(s.Hints(p, &p.Spec.Containers[0])),
		"1+ 2+ 3+ 0-1 0,2 0,3 1-2 1,3 2-3 0-2 0-1,3 0,2-3 1-3 0-3"; got != want {
		t.Errorf("without the option %q, want %q", got, want)
	}
}

// A container that has another number of CPUs than it asks for can't be aligned.
func TestHintsOfAnotherSize(t *testing.T) {
	s := static(t, grid(2, 1, 4, 1), "0")
	p := pod("a", "app=2")
	s.Adopt(PolicyStatic, Entries{"a": {"app": set(t, "1-3")}})
	for _, h := range []numa.ProviderHints{s.Hints(p, &p.Spec.Containers[0]), s.PodHints(p)} {
		if list, ok := h[string(corev1.ResourceCPU)]; !ok || list == nil || len(list) > 0 {
			t.Errorf("%v, want an empty list", h)
		}
	}
}

func TestWantedByPod(t *testing.T) {
	for _, c := range []struct {
		containers []string
		want       int
	}{
		{[]string{"app0=2", "app1=3"}, 5},
		{[]string{"app0=2", "app1=1500m"}, 2},
		{[]string{"init0=4", "init1=1", "app=3"}, 4},
		{[]string{"init=2", "app=3"}, 3},
		{[]string{"sidecar=2", "app=3"}, 5},
		{[]string{"sidecar0=2", "init=4", "sidecar1=1", "app=1"}, 6},
	} {
		if got := wantedByPod(pod("a", c.containers...)); got != c.want {
			t.Errorf("%v: %d, want %d", c.containers, got, c.want)
		}
	}
}
