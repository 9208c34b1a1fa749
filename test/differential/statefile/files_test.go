package statefile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"
)

const (
	cpuName     = "cpu_manager_state"
	memoryName  = "memory_manager_state"
	devicesName = "kubelet_internal_checkpoint"
)

// contents are the three managers' states, drawn by chance.
type contents struct {
	CPUs       map[string]map[string]cpuset.CPUSet
	Shared     cpuset.CPUSet
	Machine    memorystate.NUMANodeMap
	Memory     memorystate.ContainerMemoryAssignments
	Devices    []checkpoint.PodDevicesEntry
	Registered map[string][]string
}

func draw(r *rand.Rand) contents {
	c := contents{
		CPUs: map[string]map[string]cpuset.CPUSet{}, Shared: cpus(r), Machine: memorystate.NUMANodeMap{},
		Memory: memorystate.ContainerMemoryAssignments{}, Devices: []checkpoint.PodDevicesEntry{},
		Registered: map[string][]string{},
	}
	for id := range r.Intn(4) {
		c.Machine[id] = &memorystate.NUMANodeState{
			NumberOfAssignments: r.Intn(9), Cells: numbers(r),
			MemoryMap: map[corev1.ResourceName]*memorystate.MemoryTable{},
		}
		for range r.Intn(3) {
			c.Machine[id].MemoryMap[corev1.ResourceName(name(r))] = &memorystate.MemoryTable{
				TotalMemSize: r.Uint64(), SystemReserved: r.Uint64(), Allocatable: r.Uint64(), Reserved: uint64(r.Intn(2)),
			}
		}
	}
	for range r.Intn(4) {
		uid := name(r)
		c.CPUs[uid], c.Memory[uid] = map[string]cpuset.CPUSet{}, map[string][]memorystate.Block{}
		for range r.Intn(3) {
			container := name(r)
			c.CPUs[uid][container], c.Memory[uid][container] = cpus(r), []memorystate.Block{}
			for range r.Intn(3) {
				c.Memory[uid][container] = append(c.Memory[uid][container], memorystate.Block{
					NUMAAffinity: numbers(r), Type: corev1.ResourceName(name(r)), Size: r.Uint64(),
				})
			}
			c.Devices = append(c.Devices, devices(r, uid, container))
		}
	}
	for range r.Intn(3) {
		c.Registered[name(r)] = []string{name(r), name(r)}[:r.Intn(3)]
	}
	return c
}

func devices(r *rand.Rand, uid, container string) checkpoint.PodDevicesEntry {
	e := checkpoint.PodDevicesEntry{
		PodUID: uid, ContainerName: container, ResourceName: name(r), DeviceIDs: checkpoint.NewDevicesPerNUMA(),
	}
	for range r.Intn(3) {
		e.DeviceIDs[int64(r.Intn(4)-1)] = []string{name(r), name(r), name(r)}[:r.Intn(4)]
	}
	if n := r.Intn(30); n > 0 {
		e.AllocResp = make([]byte, n-1)
		r.Read(e.AllocResp)
	}
	return e
}

func name(r *rand.Rand) string {
	names := []string{
		"memory", "hugepages-2Mi", "example.com/gpu", "b7f5a9d2-1c1e-4c59-9c8c-0d6d4c2f9e11", "",
		"<&>\u2028é\"\\ {}()", "x\n",
	}
	return names[r.Intn(len(names))] + strings.Repeat("y", r.Intn(3))
}

func numbers(r *rand.Rand) []int { return append([]int{}, r.Perm(4)[:r.Intn(4)]...) }

func cpus(r *rand.Rand) cpuset.CPUSet { return cpuset.New(r.Perm(20)[:r.Intn(20)]...) }

// store writes the contents into a directory by the kubelet's managers' own stores.
func store(t *testing.T, dir string, c contents) {
	t.Helper()
	cpu, err := cpustate.NewCheckpointState(klog.Background(), dir, cpuName, "static", containermap.NewContainerMap())
	if err != nil {
		t.Fatal(err)
	}
	cpu.SetDefaultCPUSet(c.Shared)
	cpu.SetCPUAssignments(c.CPUs)
	memory, err := memorystate.NewCheckpointState(klog.Background(), dir, memoryName, "Static")
	if err != nil {
		t.Fatal(err)
	}
	memory.SetMachineState(c.Machine)
	memory.SetMemoryAssignments(c.Memory)
	manager, err := checkpointmanager.NewCheckpointManager(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.CreateCheckpoint(devicesName, checkpoint.New(c.Devices, c.Registered)); err != nil {
		t.Fatal(err)
	}
}

// restore reads the contents as the kubelet does when it starts.
func restore(dir string) (contents, error) {
	var c contents
	for _, name := range []string{cpuName, memoryName, devicesName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil { // it would be made
			return c, err
		}
	}
	cpu, err := cpustate.NewCheckpointState(klog.Background(), dir, cpuName, "static", containermap.NewContainerMap())
	if err != nil {
		return c, err
	}
	memory, err := memorystate.NewCheckpointState(klog.Background(), dir, memoryName, "Static")
	if err != nil {
		return c, err
	}
	manager, err := checkpointmanager.NewCheckpointManager(dir)
	if err != nil {
		return c, err
	}
	data := checkpoint.New(nil, nil)
	if err := manager.GetCheckpoint(devicesName, data); err != nil {
		return c, err
	}
	c = contents{
		CPUs: cpu.GetCPUAssignments(), Shared: cpu.GetDefaultCPUSet(), Machine: memory.GetMachineState(),
		Memory: memory.GetMemoryAssignments(),
	}
	c.Devices, c.Registered = data.GetData()
	return c, nil
}

// modes are the files of a directory and their modes.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]fs.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		found[e.Name()] = info.Mode()
	}
	return found
}

// What the kubelet has written is read and written again, byte by byte the same, and the kubelet reads it.
// KUBELOT_STATEFILES is where the files are left; internal/statefile keeps some of them in its testdata.
func TestFiles(t *testing.T) {
	root := t.TempDir()
	if given := os.Getenv("KUBELOT_STATEFILES"); given != "" {
		root = given
	}
	drawn := map[string]contents{}
	for seed := range int64(150) {
		key := fmt.Sprint(seed)
		drawn[key] = draw(rand.New(rand.NewSource(seed)))
		store(t, filepath.Join(root, "kubelet", key), drawn[key])
	}
	out, ok := kubelot(t, "statefile", "TestRewrite", "KUBELOT_STATEFILES", root)
	if want := fmt.Sprintf("rewritten: %d\n", 3*len(drawn)); !ok || !strings.Contains(out, want) {
		t.Fatalf("want %s%s", want, tail(out))
	}
	for key, want := range drawn {
		dir := filepath.Join(root, "kubelot", key)
		got, err := restore(dir)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if d := cmp.Diff(want, got, cmp.Comparer(cpuset.CPUSet.Equals)); d != "" {
			t.Errorf("%s: - written by the kubelet, + by kubelot:\n%s", key, d)
		}
		if d := cmp.Diff(modes(t, filepath.Join(root, "kubelet", key)), modes(t, dir)); d != "" {
			t.Errorf("modes, - of the kubelet, + of kubelot:\n%s", d)
		}
	}
}

// A file that kubelot has to refuse makes its test fail: else TestFiles would prove nothing.
func TestRefusedFile(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "kubelet", "0")
	store(t, dir, draw(rand.New(rand.NewSource(1))))
	path := filepath.Join(dir, memoryName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), `"policyName":"Static"`, `"policyName":"static"`, 1)
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(dir); err == nil {
		t.Error("the kubelet reads the damaged file")
	}
	out, ok := kubelot(t, "statefile", "TestRewrite", "KUBELOT_STATEFILES", root)
	if ok || !strings.Contains(out, "checksum") {
		t.Errorf("kubelot reads the damaged file:\n%s", tail(out))
	}
}

// Files of version 1, as kubelets before 1.18 wrote them, are read. What is written instead is of version 2.
func TestVersion1(t *testing.T) {
	root := t.TempDir()
	containers := containermap.NewContainerMap()
	containers.Add("uid", "main", "id")
	for key, text := range map[string]string{
		"sum": version1(t), "no sum": `{"policyName":"static","defaultCpuSet":"0","entries":{"id":"1-2"}}`,
	} {
		dir := filepath.Join(root, "kubelet", key)
		path := filepath.Join(dir, cpuName)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := cpustate.NewCheckpointState(klog.Background(), dir, cpuName, "static", containers); err != nil {
			t.Fatalf("the kubelet refuses %s: %v", text, err)
		}
	}
	out, _ := kubelot(t, "statefile", "TestRewrite", "KUBELOT_STATEFILES", root)
	if !strings.Contains(out, "rewritten: 2\n") || strings.Contains(out, "can't be used") {
		t.Errorf("not read:\n%s", tail(out))
	}
}

// version1 is a file of version 1. Its sum has the name that the type had then.
func version1(t *testing.T) string {
	t.Helper()
	old := &cpustate.CPUManagerCheckpointV1{
		PolicyName: "static", DefaultCPUSet: "0,3", Entries: map[string]string{"id": "1-2"},
	}
	h := fnv.New32a()
	fmt.Fprint(h, strings.Replace(dump.ForHash(old), "CPUManagerCheckpointV1", "CPUManagerCheckpoint", 1))
	data, err := old.MarshalCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(data), fmt.Sprintf(`"checksum":%d`, old.Checksum),
		fmt.Sprintf(`"checksum":%d`, checksum.Checksum(h.Sum32())), 1)
}
