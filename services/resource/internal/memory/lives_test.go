package memory

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A life is what happens on a machine, and what the kubelet's own code makes of it. test/differential/statefile makes
// lives; some of them are in testdata.
type life struct {
	Nodes    []Node
	Reserved Reserved
	Pods     map[string]*corev1.Pod
	Steps    []step
}

type step struct {
	// Do is hints, podHints, allocate, starting, release or restart.
	Do, Pod, Container string
	Affinity           Hint

	// Hints, Blocks and Error are what the kubelet answers, Machine and Entries its state after the step.
	Hints   map[corev1.ResourceName][]Hint
	Blocks  []Block
	Error   string
	Machine map[int]NodeState
	Entries Entries
}

// TestLives also lives through what test/differential/statefile has made, in the directory that it gives.
func TestLives(t *testing.T) {
	dirs := []string{"testdata"}
	if given := os.Getenv("KUBELOT_LIVES"); given != "" {
		dirs = []string{given}
	}
	lived := 0
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var l life
			if err := json.Unmarshal(data, &l); err != nil { //nolint:musttag // the keys are the names of the fields
				t.Fatalf("%s: %v", path, err)
			}
			t.Run(filepath.Base(path), l.live)
			lived++
		}
	}
	if t.Logf("lives: %d", lived); lived == 0 {
		t.Error("there are no lives")
	}
}

func (l life) live(t *testing.T) {
	s, err := New(PolicyStatic, l.Nodes, l.Reserved)
	if err != nil {
		t.Fatal(err)
	}
	for i, st := range l.Steps {
		got := step{Do: st.Do, Pod: st.Pod, Container: st.Container, Affinity: st.Affinity}
		pod := l.Pods[st.Pod]
		switch st.Do {
		case "hints":
			got.Hints = s.Hints(pod, containerOf(t, pod, st.Container))
		case "podHints":
			got.Hints = s.PodHints(pod)
		case "allocate":
			if got.Blocks, err = s.Allocate(pod, containerOf(t, pod, st.Container), st.Affinity); err != nil {
				got.Error = err.Error()
			}
		case "starting":
			s.Starting(pod, st.Container)
		case "release":
			s.Release(st.Pod)
		case "restart":
			entries := s.Snapshot().Entries
			if s, err = New(PolicyStatic, l.Nodes, l.Reserved); err != nil {
				t.Fatal(err)
			}
			if released := s.Adopt(entries); len(released) > 0 {
				t.Fatalf("step %d: released %+v", i, released)
			}
		default:
			t.Fatalf("step %d: %q is unknown", i, st.Do)
		}
		if got.Error != st.Error && refusals[got.Error] && refusals[st.Error] {
			got.Error = st.Error
		}
		after := s.Snapshot()
		got.Machine, got.Entries = byGroup(after.Nodes), after.Entries
		st.Machine = byGroup(st.Machine)
		if !reflect.DeepEqual(got, st) {
			t.Fatalf("step %d:\n%s\n%s, the kubelet's", i, text(t, got), text(t, st))
		}
	}
}

// refusals are both of nodes of which some are used in a group that the others don't belong to. Which of the two it is
// depends on the node of the group that has some memory left, and that may change by a restart.
var refusals = map[string]bool{errNoExtension.Error(): true, errViolates.Error(): true}

func text(t *testing.T, s step) string {
	t.Helper()
	data, err := json.Marshal(s) //nolint:musttag // the keys are the names of the fields
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func containerOf(t *testing.T, pod *corev1.Pod, name string) *corev1.Container {
	t.Helper()
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	t.Fatalf("there is no container %s", name)
	return nil
}

// byGroup has each node with what its group has, since it doesn't matter which node of the group has it.
func byGroup(nodes map[int]NodeState) map[int]NodeState {
	sums := make(map[int]NodeState, len(nodes))
	for id, n := range nodes {
		memory := make(map[corev1.ResourceName]Table, len(n.Memory))
		for name, t := range n.Memory {
			t.Free, t.Reserved = 0, 0
			for _, other := range n.Cells {
				t.Free += nodes[other].Memory[name].Free
				t.Reserved += nodes[other].Memory[name].Reserved
			}
			memory[name] = t
		}
		sums[id] = NodeState{Assignments: n.Assignments, Memory: memory, Cells: n.Cells}
	}
	return sums
}
