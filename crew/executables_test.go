package crew

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/cri/critest"
	"kubelot.dev/daemon/memory"
)

// executable is a program that is shipped, with the daemons that it runs.
type executable struct {
	// Name is the file's name. Package is that of its main function, and Module the directory of its module.
	Name, Package, Module string
	// Daemons are named without the prefix kubelot-.
	Daemons []string
}

// executables are what daemons run from if each is a process of its own. They share the pages of one executable, except
// for those that link much more than the others (docs/adr/0007 and 0015).
func executables() []executable {
	shared := executable{Name: Self, Package: "kubelot.dev/crew/cmd/" + Self, Module: "crew"}
	for _, spec := range Daemons() {
		shared.Daemons = append(shared.Daemons, spec.Name)
	}
	return []executable{
		shared,
		{"kubelot-api", "kubelot.dev/services/api/cmd/kubelot-api", "services/api", apart()},
	}
}

func TestEveryDaemonHasOneExecutable(t *testing.T) {
	script, err := os.ReadFile("../tools/build.sh")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range executables() {
		all = append(all, e.Daemons...)
		line := "executable " + e.Module + " " + e.Name
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

// Each process of a program initializes what the program links. So a new module must be seen in a review. Packages that
// cost much are forbidden by the rules in arch_test.go. UPDATE=1 writes the list again.
func TestArchLinkedModules(t *testing.T) {
	const file = "testdata/linked.txt"
	text := "# Executables and the modules that they link (UPDATE=1 go test -run ArchLinked).\n"
	for _, e := range executables() {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", e.Package)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list what %s links: %v", e.Name, err)
		}
		modules := strings.Fields(string(out))
		slices.Sort(modules)
		for _, module := range slices.Compact(modules) {
			text += e.Name + " " + module + "\n"
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reviewed := strings.Split(string(have), "\n")
	linked := strings.Split(text, "\n")
	for _, line := range linked {
		if !slices.Contains(reviewed, line) {
			t.Errorf("%q isn't in %s: import less, or review it with UPDATE=1", line, file)
		}
	}
	for _, line := range reviewed {
		if !slices.Contains(linked, line) {
			t.Errorf("%q in %s isn't so any more: UPDATE=1 removes it", line, file)
		}
	}
}

// patience is for slow machines: daemons give memory back 10 seconds after their start where nothing holds them up.
// What is above its ceiling then has the grace for another collection.
const (
	patience = 3 * time.Minute
	grace    = time.Minute
)

// Private memory is what the split into processes costs. The ceilings are of a node without pods, without an API
// server, with a runtime that has nothing. They depend on what is allocated, not on how fast: the test waits until a
// daemon is below its ceiling.
func TestIdleDaemonsAreSmall(t *testing.T) {
	dir, bed := idleBed(t)
	ceilings, processes := map[string]int{}, map[string]*exec.Cmd{}
	for _, fields := range table(t, "testdata/memory.txt") {
		ceiling, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		ceilings[fields[0]] = ceiling
		processes[fields[0]] = start(t, bed, fields[0], filepath.Join(dir, "kubelot-"+fields[0]))
	}
	if len(ceilings) != len(daemonNames()) {
		t.Errorf("there are %d ceilings for %d daemons", len(ceilings), len(daemonNames()))
	}
	end := time.Now().Add(patience)
	for name, ceiling := range ceilings {
		size := settled(t, bed, name, processes[name].Process.Pid, ceiling, end)
		t.Logf("%s has %d KiB, the ceiling is %d", name, size, ceiling)
		if size > ceiling {
			t.Errorf("%s has %d KiB of private memory while it is idle; its ceiling in testdata/memory.txt is %d",
				name, size, ceiling)
		}
	}
}

// idleBed is where daemons run that have nothing to do: the directory of the executables, and that of all else, with a
// configuration.
func idleBed(t *testing.T) (dir, bed string) {
	t.Helper()
	dir, bed = os.Getenv("KUBELOT_BIN"), t.TempDir()
	if dir == "" || os.Geteuid() != 0 {
		t.Skip("it runs the executables in KUBELOT_BIN, as root; make test does")
	}
	config := filepath.Join(bed, "kubelet.yaml")
	text := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: "+
		"KubeletConfiguration\ncontainerRuntimeEndpoint: %s\n"+
		"failCgroupV1: false\nfailSwapOn: false\ncgroupDriver: cgroupfs\ncgroupsPerQOS: false\nenforceNodeAllocatable: "+
		"[]\nenableServer: false\nhealthzPort: 0\npodLogsDir: %s/logs\n",
		critest.Start(t).Endpoint(), bed)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The daemons bind the root directory to itself, so that mounts below it reach the containers.
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Join(bed, "root"), syscall.MNT_DETACH) })
	return dir, bed
}

// settled is the least private memory of a daemon since it first gave memory back after its start, in KiB; it is looked
// at until it is below the ceiling.
func settled(t *testing.T, bed, name string, pid, ceiling int, end time.Time) int {
	t.Helper()
	least, stop := 0, end
	for {
		log, err := os.ReadFile(filepath.Join(bed, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		size := anonymous(t, pid)
		if bytes.Contains(log, []byte(memory.GivenBack)) {
			if least == 0 {
				stop = time.Now().Add(grace)
			}
			if least == 0 || size < least {
				least = size
			}
		}
		if least > 0 && least <= ceiling || time.Now().After(stop) {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if least == 0 {
		t.Errorf("%s never came to rest", name)
	}
	return least
}

// start starts a daemon, or a group of them, that ends with the test. The command gets the flags of all daemons.
func start(t *testing.T, bed, name string, command ...string) *exec.Cmd {
	t.Helper()
	command = append(command,
		"--config", filepath.Join(bed, "kubelet.yaml"), "--run-dir", filepath.Join(bed, "run"),
		"--root-dir", filepath.Join(bed, "root"), "--cert-dir", filepath.Join(bed, "pki"), "--hostname-override", "test",
		"--node-ip", "127.0.0.1", "--v", "4")
	// It has to end before the test does, not with its context, which would kill it.
	cmd := exec.Command(command[0], command[1:]...)
	file := filepath.Join(bed, name+".log")
	log, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState != nil {
			_ = log.Close()
			return // the test has ended it
		}
		_ = cmd.Process.Signal(os.Interrupt)
		if err := errors.Join(cmd.Wait(), log.Close()); err != nil && !t.Failed() {
			text, _ := os.ReadFile(file)
			t.Errorf("%s: %v\n%s", name, err, text)
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
