package crew

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli"
	"kubelot.dev/kube"
)

func TestContractsHold(t *testing.T) {
	if err := Check(topic.All(), Contracts()); err != nil {
		t.Fatal(err)
	}
}

func TestEveryTopicHasAnOwner(t *testing.T) {
	owned := map[string]bool{}
	for _, c := range Contracts() {
		for _, topics := range [][]bus.Topic{c.Writes, c.Serves} {
			for _, tp := range topics {
				owned[tp.Name()] = true
			}
		}
	}
	for _, tp := range topic.All() {
		if !owned[tp.Name()] {
			t.Errorf("nobody writes or serves %s: remove it from topic.All or add it to a contract", tp.Name())
		}
	}
}

// Check fails on each kind of broken contract.
func TestCheck(t *testing.T) {
	state := bus.NewState[int](bus.Spec{Name: "a.state", Keys: "<k>", Schema: 1})
	call := bus.NewCall[int, int](bus.Spec{Name: "a.call", Schema: 1})
	own := bus.NewState[int](bus.Spec{Name: "own", Keys: "<daemon>", Schema: 1, PerDaemon: true})
	topics := []bus.Topic{state, call, own}
	tests := []struct {
		name      string
		contracts []bus.Contract
		want      string // empty for no error
	}{
		{"sound", []bus.Contract{
			{Daemon: "x", Writes: []bus.Topic{state, own}, Serves: []bus.Topic{call}},
			{Daemon: "y", Writes: []bus.Topic{own}, Reads: []bus.Topic{state, own}, Calls: []bus.Topic{call}},
		}, ""},
		{
			"two writers",
			[]bus.Contract{{Daemon: "x", Writes: []bus.Topic{state}}, {Daemon: "y", Writes: []bus.Topic{state}}},
			"x and y both write a.state",
		},
		{
			"two servers",
			[]bus.Contract{{Daemon: "x", Serves: []bus.Topic{call}}, {Daemon: "y", Serves: []bus.Topic{call}}},
			"x and y both serve a.call",
		},
		{"no writer", []bus.Contract{{Daemon: "x", Reads: []bus.Topic{state}}}, "x reads a.state, which nobody writes"},
		{"no server", []bus.Contract{{Daemon: "x", Calls: []bus.Topic{call}}}, "x calls a.call, which nobody serves"},
		{"wrong list", []bus.Contract{{Daemon: "x", Writes: []bus.Topic{call}}}, `of the kind "call"`},
		{
			"unlisted",
			[]bus.Contract{{Daemon: "x", Writes: []bus.Topic{bus.NewState[int](bus.Spec{Name: "b"})}}},
			"topic.All doesn't list",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := Check(topics, test.contracts)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	permissions, err := Permissions(topic.All(), Contracts())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{
		"../docs/dataflow.md":        Dataflow(topic.All(), Contracts()),
		"../bus/embed/crew_gen.json": permissions,
	} {
		have, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is out of date (%v): run `go run ./cmd/contracts` in crew/", path, err)
		}
	}
}

func TestDaemonsMatchContracts(t *testing.T) {
	contracts := map[string]bool{"bus": true}
	for _, c := range Contracts() {
		contracts[c.Daemon] = true
	}
	for _, spec := range Daemons() {
		if !contracts[spec.Name] || spec.Run == nil || spec.Doc == "" ||
			(spec.Name != spec.Contract.Daemon && !spec.WithoutBus) {
			t.Errorf("the daemon %q has no contract of its name, no Run or no Doc", spec.Name)
		}
	}
}

// kubeadm compares what the program kubelet says with what the node reports.
func TestTheKubeletHasOneVersion(t *testing.T) {
	if cli.KubernetesVersion != kube.KubernetesVersion {
		t.Errorf("kubelet --version says %s, the node %s", cli.KubernetesVersion, kube.KubernetesVersion)
	}
}

func TestChoose(t *testing.T) {
	tests := []struct {
		args, program string // program is empty for an error
		own           int
	}{
		{"/usr/lib/kubelot/kubelot-podsync --v=2", "podsync", 2},
		{"kubelot tap", "kubelot", 2},
		{"kubelot-all podsync --v=2", "podsync", 2},
		{"kubelot-all kubelot-status", "status", 1},
		{"kubelot-all kubelot tap", "kubelot", 2},
		{"/usr/bin/kubelet --version", "kubelot", 2},
		{"kubelot-all check a.jsonl", "check", 3},
		{"kubelot-check a.jsonl", "", 0},
		{"kubelot-all", "", 0},
		{"kubelot-all nothing", "", 0},
		{"kubelot-nothing", "", 0},
		{"", "", 0},
	}
	for _, test := range tests {
		program, own, err := Choose(strings.Fields(test.args))
		if program != test.program || (err == nil) != (test.program != "") || len(own) != test.own {
			t.Errorf("%q: got %q, %q, %v", test.args, program, own, err)
		}
	}
}
