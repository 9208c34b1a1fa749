package crew

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kubelot.dev/cri/critest"
)

// build builds an executable as tools/build.sh does.
func build(t *testing.T, dir string, e Executable) string {
	t.Helper()
	path := filepath.Join(dir, e.Name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, e.Package)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", e.Name, err, out)
	}
	return path
}

// built are all executables, built once, with a link per daemon.
var built = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "kubelot-crew-test-") })

func executables(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Executables() {
		if _, err := os.Stat(filepath.Join(dir, e.Name)); err == nil {
			continue
		}
		build(t, dir, e)
		for _, name := range e.Daemons {
			if link := "kubelot-" + name; link != e.Name {
				if err := os.Symlink(e.Name, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func TestEveryDaemonHasOneExecutable(t *testing.T) {
	script, err := os.ReadFile("../tools/build.sh")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range Executables() {
		all = append(all, e.Daemons...)
		line := "executable " + e.Module + " " + e.Name
		if group, ok := strings.CutPrefix(e.Name, "kubelot-"); ok && e.Module == "crew" {
			line = group
		}
		if !bytes.Contains(script, []byte(line)) {
			t.Errorf("tools/build.sh doesn't build %s: it has no %q", e.Name, line)
		}
		if rules[e.Package] == nil {
			t.Errorf("%s has no import rules", e.Package)
		}
	}
	want := daemonNames()
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("the executables have %v, the daemons are %v", all, want)
	}
}

// The packages whose initialization allocates much are a list that people review. What is between the limits may be in
// it or not, so that a few bytes more or less fail nothing.
const (
	heavyInit = 24 << 10
	lightInit = 14 << 10
)

var initLine = regexp.MustCompile(`^init (\S+) @.* (\d+) bytes, `)

// What a program links it initializes, in each of its processes: a new import that costs much is to be seen in a
// review. UPDATE=1 writes the list anew.
func TestPackagesThatAreHeavyAtStart(t *testing.T) {
	dir := executables(t)
	const file = "testdata/heavy.txt"
	listed := map[string]bool{}
	for _, fields := range table(t, file) {
		listed[fields[0]+" "+fields[1]] = true
	}
	var lines []string
	for _, e := range Executables() {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "kubelot-"+e.Daemons[0]), "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", e.Name, err, out)
		}
		for line := range strings.Lines(string(out)) {
			m := initLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			key := e.Name + " " + m[1]
			size, _ := strconv.Atoi(m[2])
			if size >= heavyInit {
				lines = append(lines, key)
			}
			if size >= heavyInit && !listed[key] && os.Getenv("UPDATE") == "" {
				t.Errorf("%s allocates %d KiB at the start of each process of %s: import less, or review it into %s", m[1], size>>10, e.Name, file)
			}
			if size >= lightInit {
				delete(listed, key)
			}
		}
	}
	if os.Getenv("UPDATE") != "" {
		write(t, file, lines)
		return
	}
	for key := range listed {
		t.Errorf("%s has %q, which isn't so any more: remove it", file, key)
	}
}

// patience is for slow machines: daemons give memory back 10 seconds after their start where nothing holds them up.
const patience = 3 * time.Minute

// Private memory is what the split into processes costs. The ceilings are of a node without pods, without an API
// server, with a runtime that has nothing. They depend on what is allocated, not on how fast: the test waits until a
// daemon is below its ceiling.
func TestIdleDaemonsAreSmall(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("it runs the daemons, as root")
	}
	dir, bed := executables(t), t.TempDir()
	config := filepath.Join(bed, "kubelet.yaml")
	text := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: %s\n"+
		"failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\nenableServer: false\npodLogsDir: %s/logs\n",
		critest.Start(t).Endpoint(), bed)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ceilings, smallest := map[string]int{}, map[string]int{}
	processes := map[string]*exec.Cmd{}
	for _, fields := range table(t, "testdata/memory.txt") {
		ceiling, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		ceilings[fields[0]] = ceiling
		processes[fields[0]] = start(t, dir, bed, fields[0])
	}
	if len(ceilings) != len(daemonNames()) {
		t.Errorf("there are %d ceilings for %d daemons", len(ceilings), len(daemonNames()))
	}
	pending := len(ceilings)
	for end := time.Now().Add(patience); pending > 0 && time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		pending = 0
		for name, cmd := range processes {
			size := anonymous(t, cmd.Process.Pid)
			if smallest[name] == 0 || size < smallest[name] {
				smallest[name] = size
			}
			if smallest[name] > ceilings[name] {
				pending++
			}
		}
	}
	for name, ceiling := range ceilings {
		t.Logf("%s has %d KiB, the ceiling is %d", name, smallest[name], ceiling)
		if smallest[name] > ceiling {
			t.Errorf("%s never has less than %d KiB of private memory while it is idle; its ceiling in testdata/memory.txt is %d", name, smallest[name], ceiling)
		}
	}
}

// start starts a daemon that ends with the test.
func start(t *testing.T, dir, bed, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "kubelot-"+name), "--config", filepath.Join(bed, "kubelet.yaml"),
		"--run-dir", filepath.Join(bed, "run"), "--root-dir", filepath.Join(bed, "root"), "--hostname-override", "test", "--node-ip", "127.0.0.1")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("%s: %v\n%s", name, err, log.String())
		}
	})
	return cmd
}

// anonymous is a process's private memory that no file backs, in KiB.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatalf("a daemon has ended: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); fields[0] == "Anonymous:" {
			size, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return size
		}
	}
	t.Fatal("smaps_rollup has no Anonymous")
	return 0
}

// table reads lines of two fields; those with # are comments.
func table(t *testing.T, file string) [][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
		if fields := strings.Fields(scanner.Text()); len(fields) == 2 && fields[0] != "#" {
			rows = append(rows, fields)
		}
	}
	return rows
}

func write(t *testing.T, file string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	text := "# Executables and the packages whose initialization allocates 24 KiB or more (UPDATE=1 go test -run Heavy).\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
