package crew

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/services/api"
)

// rule says what one program must not link, and why. Packages are given by the beginning of their path.
type rule struct {
	forbidden string
	reason    string
}

// everywhere holds for every program.
var everywhere = []rule{
	{"k8s.io/kubernetes/", "the product is built from published modules; k8s.io/kubernetes isn't one"},
	{"testing", "test helpers don't belong into a program"},
	{"kubelot.dev/services/podsync/podsynctest", "it shows podsync's inner packages to test/differential alone"},
	{"github.com/stretchr/", "test helpers don't belong into a program"},
}

// light holds for all programs but those of apart: each process pays for what its executable links.
var light = []rule{
	{"k8s.io/client-go/kubernetes/scheme", "it has all groups of the API, 0.7 MiB at each start; package kube has the " +
		"types that are used"},
	{"k8s.io/client-go/kubernetes/typed", "their apply configurations link the scheme and OpenAPI; package kube has a " +
		"small typed client"},
	{"github.com/distribution/reference", "its regular expressions take 0.5 MiB at each start; cri/imagename does the " +
		"same by hand"},
	{"k8s.io/client-go/kubernetes.", "the whole clientset costs every daemon megabytes; package kube has the typed " +
		"clients that are used"},
	{"k8s.io/client-go/informers", "reflectors without indexers are enough and smaller"},
	{"k8s.io/apiserver/", "it links the whole clientset, CEL and OpenTelemetry's exporters; only kubelot-api, which has " +
		"an executable of its own, may"},
}

const (
	noAPIServer = "rule 3 of the design: this daemon can't reach the API server, so it can't come to depend on it"
	noRuntime   = "rule 3 of the design: this daemon can't reach the container runtime, so it can't act behind " +
		"podsync's back"
	noNATS = "only kubelot-bus is the bus"
	tiny   = "it is there for its size: 2.2 MiB, and each package adds to that"
	small  = "it is there for its size: 3 MiB, and each package adds to that"
	noCLI  = "a daemon never needs the command line"
)

// rules are the programs' packages with what each must not link.
var rules = map[string][]rule{
	"kubelot.dev/bus/embed/cmd/kubelot-bus": {
		{"kubelot.dev/kube", noAPIServer},
		{"kubelot.dev/cri", noRuntime},
	},
	"kubelot.dev/services/podsync/cmd/kubelot-podsync": {},
	"kubelot.dev/services/pleg/cmd/kubelot-pleg": {
		{"kubelot.dev/kube", noAPIServer},
		{"k8s.io/client-go", noAPIServer},
	},
	"kubelot.dev/services/status/cmd/kubelot-status":     {{"kubelot.dev/cri", noRuntime}, {"k8s.io/cri-api", noRuntime}},
	"kubelot.dev/services/lease/cmd/kubelot-lease":       {{"kubelot.dev/cri", noRuntime}, {"k8s.io/cri-api", noRuntime}},
	"kubelot.dev/services/volume/cmd/kubelot-volume":     {{"kubelot.dev/cri", noRuntime}, {"k8s.io/cri-api", noRuntime}},
	"kubelot.dev/services/resource/cmd/kubelot-resource": {{"kubelot.dev/cri", noRuntime}, {"k8s.io/cri-api", noRuntime}},
	"kubelot.dev/services/probe/cmd/kubelot-probe": {
		{"kubelot.dev/kube", noAPIServer},
		{"k8s.io/client-go", noAPIServer},
	},
	"kubelot.dev/services/gc/cmd/kubelot-gc": {
		{"kubelot.dev/kube", noAPIServer},
		{"k8s.io/client-go", noAPIServer},
	},
	"kubelot.dev/services/stats/cmd/kubelot-stats": {
		{"kubelot.dev/kube", noAPIServer},
		{"k8s.io/client-go", noAPIServer},
	},
	"kubelot.dev/services/api/cmd/kubelot-api": {},
	"kubelot.dev/daemon/cmd/kubelot-doze": {
		{"fmt", tiny},
		{"net", tiny},
		{"log", tiny},
		{"flag", tiny},
		{"encoding/json", tiny},
		{"kubelot.dev/daemon.", tiny},
		{"kubelot.dev/bus", tiny},
		{"github.com", tiny},
		{"k8s.io", tiny},
	},
	"kubelot.dev/cli/cmd/kubelot-up": {
		{"kubelot.dev/daemon.", small},
		{"kubelot.dev/bus.", small},
		{"kubelot.dev/cli.", small},
		{"github.com/spf13", small},
		{"github.com/prometheus/client_golang", small},
		{"net/http", small},
		{"k8s.io", small},
	},
	"kubelot.dev/crew/cmd/kubelot-all":     {},
	"kubelot.dev/crew/cmd/kubelot-compact": {},
	"kubelot.dev/cli/cmd/kubelot": {
		{"kubelot.dev/kube", noAPIServer},
		{"k8s.io/client-go", noAPIServer},
		{"kubelot.dev/services", "the command line starts daemons as processes"},
	},
}

// The reasons above are what a person reads who breaks a rule.
func TestArchProgramsLinkWhatTheyMay(t *testing.T) {
	for program, own := range rules {
		t.Run(program[strings.LastIndexByte(program, '/')+1:], func(t *testing.T) {
			for _, dep := range dependencies(t, program) {
				for _, r := range append(own, common(program)...) {
					if strings.HasPrefix(dep+".", r.forbidden) {
						t.Errorf("%s links %s: %s", program, dep, r.reason)
					}
				}
			}
		})
	}
}

func TestArchEveryDaemonHasItsRules(t *testing.T) {
	for _, name := range daemonNames() {
		found := false
		for program := range rules {
			found = found || strings.HasSuffix(program, "/kubelot-"+name)
		}
		if !found {
			t.Errorf("daemon %s has no import rules: add its program to rules", name)
		}
	}
}

// common are the rules for every program, and those between programs.
func common(program string) []rule {
	all := append([]rule{}, everywhere...)
	if strings.HasSuffix(program, "/"+Compact) {
		return all // it is one process, whatever it links
	}
	if !slices.ContainsFunc(apart(), func(name string) bool { return strings.HasSuffix(program, "/kubelot-"+name) }) {
		all = append(all, light...)
	}
	if strings.HasSuffix(program, "/"+Self) {
		return all
	}
	if !strings.Contains(program, "/bus/embed/") {
		all = append(all, rule{"github.com/nats-io/nats-server", noNATS}, rule{"kubelot.dev/bus/embed", noNATS})
	}
	if !strings.Contains(program, "/cli/") {
		all = append(all, rule{"kubelot.dev/cli", noCLI}, rule{"kubelot.dev/crew.", noCLI})
	}
	if strings.HasPrefix(program, "kubelot.dev/crew/") {
		return all // it is several services, which meet on the bus nevertheless
	}
	module, _, _ := strings.Cut(program, "/cmd/")
	for _, name := range daemonNames() {
		if other := "kubelot.dev/services/" + name; other != module {
			all = append(all, rule{other, "services never import services: they meet on the bus"})
		}
	}
	return all
}

// apart are the daemons that have an executable of their own, because what they link would cost every other process of
// the multi-call executable memory (docs/adr/0007).
func apart() []string { return []string{api.Contract.Daemon} }

// daemonNames are all daemons, wherever their executables are.
func daemonNames() []string {
	names := apart()
	for _, spec := range Daemons() {
		names = append(names, spec.Name)
	}
	return names
}

// dependencies are all packages that a program links.
func dependencies(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
	if err != nil {
		t.Fatalf("list what %s links: %v", program, err)
	}
	return strings.Fields(string(out))
}
