package crew

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The budget on the tail of sizes, in lines. A daemon's tests don't count.
const (
	maxFile   = 400 // of tests too
	maxDaemon = 4400
	// maxPackage is for the packages of a daemon that is larger than maxDaemon. The largest, volume's csi, decides with
	// its SELinux labels whether a volume waits for other pods, which is part of what its core decides.
	maxPackage = 2400
)

// split are the daemons that are larger because their work is, with the ceiling of each; they are held together by
// small packages. gc has two works: what it collects, and the shutdown of the node, which shares the process only (ADR
// 0027) and brings a logind for tests. It also goes on with what an earlier process has evicted, and collects what
// nobody can want while a source of pods is away.
// volume has the drivers of others too: their registration, and CSI (ADR 0029), of which each answer is checked, and
// each call and each connection is watched; and network volumes (NFS, iSCSI, fibre channel), whose servers may hang. It
// decides which pods may share a volume that is mounted with an SELinux label, and gives files in memory to the IDs of
// pods in user namespaces where the kernel can't map them. A pod that waits for another's volume work says for which.
// Each operation of the kubelet's storage metrics is measured where it is done. A driver that doesn't say how it names
// the node shows in the daemon's health.
// resource has five works of the kubelet: devices, CPUs, memory, topology and claims, each in packages without I/O and
// a shell around them (ADR 0030), and heals the configurations that a kubelet doesn't start with. It reserves what a
// pod asks for in one step, and lets plugins choose afterwards. Without the kubelet's file it takes the devices that
// pods have from the bus, with what their plugins have answered.
// api has two works: it serves the node's API, and sends the traces of pods (ADR 0032), since it links OpenTelemetry's
// libraries anyway. Part of it bounds what clients on its three ports can use up, HTTP/2 clients without rights and
// with small ones too, and `/healthz` has the checks that the kubelet has.
// podsync asks credential providers for pulls. Their machinery is in kube/credentialprovider; what joins it with the
// pods' own credentials, the records of pulls and the metrics is podsync's. So is what the feature gates MemoryQoS and
// QOSReserved have it write: into containers, pods' cgroups and those above them. Its containers get their CFS quota
// back when they lose the CPUs that they had alone. Who gets the place of a preempted pod waits for its end, also over
// a restart. What that is decided from is spelled out for a package of its own, admission/ledger. It refuses pods that
// need features which the node doesn't declare. Containers whose postStart hooks run aren't probed, so it says which
// they are, and it keeps the records of volumes that a driver has not taken back. It asks the API server for the node's
// labels before it refuses a pod for them. A pod asks for what it has alone when those have ended that have it.
// What it has answered to a resize that waits, it says again after a restart. resource finds whole cores where cores
// have unequal numbers of threads. podsync tells the runtime whose image it pulls, and a resized pod's new size;
// resource counts what podsync refuses. podsync holds each cgroup of the node to its limits by itself, with Events, and
// a pod that nobody wants any more yields its place. resource asks a plugin about one pod after the other, and has pods
// wait for what others may free.
// The types have ceilings of their own, see largeTypes.
var split = map[string]int{"api": 5010, "gc": 6470, "podsync": 20760, "volume": 14480, "resource": 14030}

func TestArchFilesAreShort(t *testing.T) {
	for path, lines := range goFiles(t, "..") {
		if lines > maxFile {
			t.Errorf("%s has %d lines, the limit is %d: split it by what changes together", path, lines, maxFile)
		}
	}
}

func TestArchDaemonsAreSmall(t *testing.T) {
	for _, name := range daemonNames() {
		dir := "../services/" + name
		if name == "bus" {
			dir = "../bus/embed"
		}
		total, packages := 0, map[string]int{}
		for path, lines := range goFiles(t, dir) {
			if !strings.HasSuffix(path, "_test.go") {
				total += lines
				packages[filepath.Dir(path)] += lines
			}
		}
		if total == 0 {
			t.Errorf("no Go file of daemon %s in %s", name, dir)
		}
		if most := max(maxDaemon, split[name]); total > most {
			t.Errorf("daemon %s has %d lines without tests, the limit is %d", name, total, most)
		}
		for pkg, lines := range packages {
			if total > maxDaemon && lines > maxPackage {
				t.Errorf("package %s has %d lines without tests, the limit in a daemon of several packages is %d",
					pkg, lines, maxPackage)
			}
		}
	}
}

// goFiles counts the lines of the Go files below dir, without hidden directories and generated files.
func goFiles(t *testing.T, dir string) map[string]int {
	t.Helper()
	files := map[string]int{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(name, ".") && strings.Trim(name, ".") != "":
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(data[:min(len(data), 500)], []byte("// Code generated ")) {
			files[path] = bytes.Count(data, []byte("\n"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
