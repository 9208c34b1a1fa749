package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// TestScenarios runs testdata: each file states a node and the pods that are active, and whether others are admitted.
// "go test -rewrite" writes the answers; read the difference before you keep it.
//
//	machine   lines "allow SYSCTL", "apparmor", "shutdown", "pressure memory|disk|pid"; nothing is kept of an earlier one
//	node      a Node in YAML; nothing for none
//	active    a list of Pods in YAML, whose UIDs are their names
//	admit     a Pod in YAML
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{facts: Facts{OS: "linux", Arch: "amd64"}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	facts  Facts
	node   *corev1.Node
	active []Held
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "machine":
		s.facts = Facts{OS: "linux", Arch: "amd64"}
		for line := range strings.Lines(d.Input) {
			s.fact(t, strings.Fields(line))
		}
	case "node":
		s.node = nil
		if d.Input != "" {
			s.node = &corev1.Node{}
			decode(t, d.Input, s.node)
		}
	case "active":
		s.active = nil
		var pods []*corev1.Pod
		decode(t, d.Input, &pods)
		for _, p := range pods {
			p.UID = types.UID(p.Name)
			s.active = append(s.active, Hold(p))
		}
	case "admit":
		pod := &corev1.Pod{}
		decode(t, d.Input, pod)
		return s.admit(pod)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func (s *scenario) fact(t *testing.T, words []string) {
	t.Helper()
	pressure := map[string]*bool{
		"memory": &s.facts.Pressure.Memory, "disk": &s.facts.Pressure.Disk, "pid": &s.facts.Pressure.PID,
	}
	switch {
	case words[0] == "allow":
		s.facts.AllowedUnsafeSysctls = append(s.facts.AllowedUnsafeSysctls, words[1])
	case words[0] == "apparmor":
		s.facts.AppArmor = true
	case words[0] == "shutdown":
		s.facts.ShuttingDown = true
	case words[0] == "pressure" && pressure[words[1]] != nil:
		*pressure[words[1]] = true
	default:
		t.Fatalf("unknown fact %q", words)
	}
}

// admit says whether the pod is admitted, or why not, and which pods are to make room for it.
func (s *scenario) admit(pod *corev1.Pod) string {
	r := Admit(pod, s.node, s.active, s.facts)
	if r == nil {
		return "admitted"
	}
	text := r.Error()
	for _, victim := range Victims(pod, r, s.active) {
		text += fmt.Sprintf("\n%s makes room", victim.Name)
	}
	return text
}
