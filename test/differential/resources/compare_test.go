package resources

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// product has kubelot's packages, whose imports begin with productPath.
	product     = "../../../services/resource/internal"
	productPath = `"kubelot.dev/services/resource/internal/`
	// compared is the module that all packages are in for a run.
	compared = "kubelot.dev/compared"
)

// edit replaces text in a file of Kubernetes; the text has to be there so many times.
type edit struct {
	file, from, to string
	times          int
}

// edits make way for the shims. One mends Kubernetes' iterateCombinations, which hands out a slice that it goes on
// writing to: from four NUMA nodes on, the combination that was found best changes afterwards.
var edits = map[string][]edit{
	"cpumanager": {
		{"cpu_assignment.go", "takeByTopologyNUMAPacked(logger", "upstreamPacked(logger", 5},
		{"cpu_assignment.go", "takeByTopologyNUMADistributed(logger", "upstreamDistributed(logger", 1},
		{"policy_static.go", "func (p *staticPolicy) generateCPUTopologyHints(", "func (p *staticPolicy) upstreamHints(", 1},
		{"policy_static.go", "func (p *staticPolicy) allocateCPUs(", "func (p *staticPolicy) upstreamAllocate(", 1},
		{
			"cpu_assignment.go", "helper(n, k-1, i+1, append(accum, n[i]), f)",
			"helper(n, k-1, i+1, append(append([]int{}, accum...), n[i]), f)", 1,
		},
	},
	"topologymanager": {
		{"policy_best_effort.go", "func (p *bestEffortPolicy) Merge(", "func (p *bestEffortPolicy) upstreamMerge(", 1},
		{"policy_restricted.go", "func (p *restrictedPolicy) Merge(", "func (p *restrictedPolicy) upstreamMerge(", 1},
		{
			"policy_single_numa_node.go", "func (p *singleNumaNodePolicy) Merge(",
			"func (p *singleNumaNodePolicy) upstreamMerge(", 1,
		},
	},
}

// bench is a directory with a module of kubelot's packages, Kubernetes' and those that connect them.
type bench struct {
	t   *testing.T
	dir string
}

func (b bench) put(path string, content []byte) {
	b.t.Helper()
	file := filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// tree puts all Go files below a directory, after the change.
func (b bench) tree(from, to string, tests bool, change func(path string, content []byte) []byte) {
	b.t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || (!tests && strings.HasSuffix(path, "_test.go")) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		b.put(filepath.Join(to, rel), change(rel, content))
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// upstream puts a package of Kubernetes.
func (b bench) upstream(kubernetes, pkg string) {
	b.t.Helper()
	left := edits[pkg]
	b.tree(filepath.Join(kubernetes, "pkg/kubelet/cm", pkg), pkg, true, func(path string, content []byte) []byte {
		var rest []edit
		for _, e := range left {
			if e.file != path {
				rest = append(rest, e)
				continue
			}
			if n := bytes.Count(content, []byte(e.from)); n != e.times {
				b.t.Fatalf("Kubernetes' %s/%s has %q %d times, not %d: look at it, and adapt the edits", pkg, path, e.from, n,
					e.times)
			}
			content = bytes.ReplaceAll(content, []byte(e.from), []byte(e.to))
		}
		left = rest
		return content
	})
	if len(left) > 0 {
		b.t.Fatalf("Kubernetes' package %s has no file %s any more: adapt the edits", pkg, left[0].file)
	}
}

func kubernetes(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// module makes the go.mod: this module's, with what Kubernetes' tests need besides.
func (b bench) module(kubernetes string) {
	b.t.Helper()
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			b.t.Fatal(err)
		}
		return data
	}
	theirs, ours := read(filepath.Join(kubernetes, "go.mod")), read("../go.mod")
	for _, path := range []string{"github.com/stretchr/testify", "github.com/onsi/gomega"} {
		for line := range strings.Lines(string(theirs)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == path {
				ours = fmt.Appendf(ours, "\nrequire %s %s\n", path, fields[1])
			}
		}
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		b.t.Fatal(err)
	}
	ours = bytes.Replace(ours, []byte("module kubelot.dev/test/differential\n"), []byte("module "+compared+"\n"), 1)
	ours = bytes.ReplaceAll(ours, []byte("=> ../../"), []byte("=> "+root+"/"))
	b.put("go.mod", ours)
	b.put("go.sum", slices.Concat(read("../go.sum"), read(filepath.Join(kubernetes, "go.sum"))))
}

// packages are the directories of product with the code that is compared, and with what it imports of there.
func packages(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "./machine", "./numa", "./cpus")
	cmd.Dir = product
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v in %s: %v", cmd.Args, product, err)
	}
	var dirs []string
	for path := range strings.Lines(string(out)) {
		if below, ok := strings.CutPrefix(path, strings.Trim(productPath, `"`)); ok {
			dir, _, _ := strings.Cut(strings.TrimSpace(below), "/") // a directory is taken with those below it
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// build lays out the bench.
func build(t *testing.T) bench {
	t.Helper()
	b := bench{t: t, dir: t.TempDir()}
	for _, pkg := range packages(t) {
		b.tree(filepath.Join(product, pkg), pkg, false, func(_ string, content []byte) []byte {
			return bytes.ReplaceAll(content, []byte(productPath), []byte(`"`+compared+`/`))
		})
	}
	source := kubernetes(t)
	for pkg := range edits {
		b.upstream(source, pkg)
	}
	b.tree("testdata", "", true, func(_ string, content []byte) []byte { return content })
	b.module(source)
	return b
}

// Kubernetes' own tests pass on kubelot's code, and both sides agree on random machines.
func TestUpstream(t *testing.T) {
	b := build(t)
	for _, c := range []struct {
		pkg string
		// must are tests that prove something, so they have to have run.
		must []string
	}{
		{"topologymanager", []string{
			"TestPolicyBestEffortMerge", "TestPolicyBestEffortMergeClosestNUMA", "TestPolicyRestrictedMerge",
			"TestPolicyRestrictedMergeClosestNUMA", "TestPolicySingleNumaNodeMerge", "TestAdmit", "TestRandomMerge",
		}},
		{"cpumanager", []string{
			"TestTakeByTopologyNUMAPacked", "TestTakeByTopologyNUMADistributed",
			"TestTakeByTopologyWithSpreadPhysicalCPUsPreferredOption", "TestStaticPolicyAdd", "TestStaticPolicyReuseCPUs",
			"TestStaticPolicyAddWithUncoreAlignment", "TestTopologyAwareAllocateCPUs", "TestGetTopologyHints",
			"TestGetPodTopologyHints", "TestGetPodTopologyHintsWithPolicyOptions", "TestRandomPicks",
		}},
		{"lives", []string{"TestLives", "TestMachineHere"}},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-v", "-mod=mod", "./"+c.pkg)
			cmd.Dir = b.dir
			cmd.Env = append(os.Environ(), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, failures(out))
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, ": map[") {
					t.Log("how many cases were of which kind:", strings.TrimSpace(line))
				}
			}
			for _, name := range c.must {
				if !bytes.Contains(out, []byte("\n--- PASS: "+name+" ")) {
					t.Errorf("%s did not pass, or is gone", name)
				}
			}
		})
	}
}

// failures are the parts of go test's output that say what is wrong, or its end.
func failures(out []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if text := strings.TrimSpace(line); !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- PASS") &&
			!strings.Contains(line, "] ") {
			b.WriteString(line)
		}
	}
	const most = 20000
	return b.String()[max(0, b.Len()-most):]
}
