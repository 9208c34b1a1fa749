package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/memory"
)

var (
	someCPUs = CPU{
		Policy: "static", Shared: cpuset.New(0, 3, 4),
		Containers: map[string]map[string]cpuset.CPUSet{
			"pod-1": {"a": cpuset.New(1), "b": cpuset.New(2)}, "pod-2": {"a": cpuset.New()},
		},
	}
	someMemory = Memory{Policy: memory.PolicyStatic, Snapshot: memory.Snapshot{
		Nodes: map[int]memory.NodeState{
			0: {Assignments: 2, Cells: []int{0, 1}, Memory: map[corev1.ResourceName]memory.Table{
				"memory":        {Total: 100, SystemReserved: 10, Allocatable: 90, Reserved: 90},
				"hugepages-2Mi": {},
			}},
			1: {Assignments: 1, Cells: []int{0, 1}, Memory: map[corev1.ResourceName]memory.Table{
				"memory": {Total: 100, Allocatable: 100, Reserved: 5, Free: 95},
			}},
		},
		Entries: memory.Entries{"pod-1": {"a": {{Nodes: []int{0, 1}, Type: "memory", Size: 95}}, "init": {
			{Nodes: []int{0}, Type: "memory"},
		}}},
	}}
	someDevices = Devices{
		Registered: map[string][]string{"example.com/gpu": {"a", "b"}, "example.com/none": {}},
		Entries: []DeviceEntry{{
			PodUID: "pod-1", ContainerName: "a", ResourceName: "example.com/gpu",
			DeviceIDs: map[int64][]string{-1: {"a"}, 1: {"b", "c"}}, AllocResp: []byte{0, 1, 255},
		}, {PodUID: "pod-2", ContainerName: "b", ResourceName: "example.com/gpu", DeviceIDs: map[int64][]string{}}},
	}
)

// same reads what was written, and compares.
func same[T any](t *testing.T, content T, write func(string, T) error, read func(string) (T, error)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := write(path, content); err != nil {
		t.Fatal(err)
	}
	got, err := read(path)
	if err != nil || !reflect.DeepEqual(got, content) {
		t.Errorf("%+v, %v; want %+v", got, err, content)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v; want the mode of the kubelet's files", info, err)
	}
	if err := write(filepath.Join(path, "below"), content); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one with the path", err)
	}
}

func TestWrittenIsRead(t *testing.T) {
	same(t, someCPUs, WriteCPU, ReadCPU)
	same(t, someMemory, WriteMemory, ReadMemory)
	same(t, someDevices, WriteDevices, ReadDevices)
	same(t, CPU{
		Policy: "none", Shared: cpuset.New(), Containers: map[string]map[string]cpuset.CPUSet{},
	}, WriteCPU, ReadCPU)
	same(t, Memory{Policy: memory.PolicyNone, Snapshot: memory.Snapshot{
		Nodes: map[int]memory.NodeState{}, Entries: memory.Entries{},
	}}, WriteMemory, ReadMemory)
	same(t, Devices{Registered: map[string][]string{}}, WriteDevices, ReadDevices)
}

// What can't be written as it is has the sum of what is read instead.
func TestOddContents(t *testing.T) {
	data, err := devicesFile(Devices{Registered: map[string][]string{"bad \xff text": nil}})
	if err == nil {
		_, err = devicesOf(data)
	}
	if err != nil {
		t.Error(err)
	}
	data, err = memoryFile(Memory{Policy: "Static", Snapshot: memory.Snapshot{
		Nodes: map[int]memory.NodeState{0: {}}, Entries: memory.Entries{"pod": nil, "other": {"a": nil, "b": {{}}}},
	}})
	if err == nil {
		_, err = memoryOf(data)
	}
	if err != nil {
		t.Error(err)
	}
	data, err = cpuFile(CPU{Policy: "static", Containers: map[string]map[string]cpuset.CPUSet{"pod": nil}})
	if err == nil {
		_, err = cpuOf(data)
	}
	if err != nil {
		t.Error(err)
	}
}

type decoder func(data string) error

var decoders = map[string]decoder{
	"cpu":     func(data string) error { _, err := cpuOf([]byte(data)); return err },
	"memory":  func(data string) error { _, err := memoryOf([]byte(data)); return err },
	"devices": func(data string) error { _, err := devicesOf([]byte(data)); return err },
}

func TestUnusable(t *testing.T) {
	all := []string{"cpu", "memory", "devices"}
	for _, tt := range []struct {
		data, want string
		of         []string
	}{
		{"", "unexpected end of JSON input at byte 0", all},
		{`{"checksum":`, "at byte 12", all},
		{"null", "", all},
		{`["static"]`, "array", all},
		{`{"policyName":1,"Data":1}`, "number", all},
		{`{"checksum":0,"Checksum":-1}`, "number -1", all},
		{`{}{}`, "after top-level value at byte 3", all},
		{`{"checksum":0}`, "it names no policy", []string{"cpu", "memory"}},
		{`{"checksum":0}`, "its checksum is 0, but", []string{"devices"}},
		{`{"policyName":"static","checksum":7}`, "its checksum is 7, but", []string{"cpu", "memory"}},
		{
			`{"policyName":"static","podEntries":{"uid":{}},"checksum":7}`, "PodLevelResourceManagers",
			[]string{"cpu", "memory"},
		},
		{`{"policyName":"static","defaultCpuSet":"0-"}`, `defaultCpuSet: "0-" isn't a list of CPUs`, []string{"cpu"}},
		{`{"policyName":"static","defaultCpuSet":"0-10000"}`, "CPUs that no machine has", []string{"cpu"}},
		{
			`{"policyName":"static","entries":{"uid":{"main":"a"}}}`, `container "main" of pod "uid": "a" isn't`,
			[]string{"cpu"},
		},
		{`{"policyName":"static","entries":{"id":"a"}}`, "cannot unmarshal string", []string{"cpu"}},
		{`{"policyName":"Static","machineState":{"0":null}}`, "NUMA node 0 is null", []string{"memory"}},
		{
			`{"policyName":"Static","machineState":{"1":{"memoryMap":{"memory":null}}}}`, `"memory" of NUMA node 1 is null`,
			[]string{"memory"},
		},
		{`{"policyName":"Static","machineState":{"one":{}}}`, "one", []string{"memory"}},
		{
			`{"policyName":"` + strings.Repeat("x", 10000) + `","checksum":7}`, "its checksum is 7, but",
			[]string{"cpu", "memory"},
		},
	} {
		for _, kind := range tt.of {
			err := decoders[kind](tt.data)
			if !errors.Is(err, errUnusable) || !strings.Contains(fmt.Sprint(err), tt.want) || len(err.Error()) > 500 {
				t.Errorf("%s, %.80s: error %.600v, want %q", kind, tt.data, err, tt.want)
			}
		}
	}
}

// A byte that is changed is found by the sum, or is of no meaning, such as a key that the kubelet doesn't know either.
func damage[T any](t *testing.T, content T, encode func(T) ([]byte, error), decode func([]byte) (T, error)) {
	t.Helper()
	data, err := encode(content)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range data {
		for _, bit := range []byte{1, 4, 32} {
			damaged := []byte(string(data))
			damaged[i] ^= bit
			got, err := decode(damaged)
			if err == nil && !reflect.DeepEqual(got, content) {
				t.Errorf("%s was read as %+v", damaged, got)
			}
			if errors.Is(err, errUnusable) {
				found++
			} else if err != nil {
				t.Errorf("%s: %v", damaged, err)
			}
		}
		if _, err := decode(data[:i]); !errors.Is(err, errUnusable) {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	if found < 2*len(data) {
		t.Errorf("of %d changes only %d were found", 3*len(data), found)
	}
}

func TestDamage(t *testing.T) {
	damage(t, someCPUs, cpuFile, cpuOf)
	damage(t, someMemory, memoryFile, memoryOf)
	damage(t, someDevices, devicesFile, devicesOf)
}

// The first file is as kubelets wrote them: test/differential/statefile has its sum from the kubelet's own code.
func TestVersion1(t *testing.T) {
	for _, data := range []string{
		`{"policyName":"static","defaultCpuSet":"0,3","entries":{"id":"1-2"},"checksum":799143437}`,
		`{"policyName":"static","defaultCpuSet":"0,3","entries":{"id":"1-2"}}`,
	} {
		c, err := cpuOf([]byte(data))
		want := CPU{Policy: "static", Shared: cpuset.New(0, 3), ByID: map[string]cpuset.CPUSet{"id": cpuset.New(1, 2)}}
		if err != nil || !reflect.DeepEqual(c, want) {
			t.Errorf("%s: %+v, %v; want %+v", data, c, err, want)
		}
	}
	data := `{"policyName":"static","defaultCpuSet":"0,4","entries":{"id":"1-2"},"checksum":799143437}`
	if c, err := cpuOf([]byte(data)); !errors.Is(err, errUnusable) {
		t.Errorf("another sum: %+v, %v", c, err)
	}
}

// A plugin that has a device for each MiB of a card's memory lists some MiB of IDs, and its containers have most.
func TestWhatIsWrittenIsNeverTooLargeToBeRead(t *testing.T) {
	d := Devices{Registered: map[string][]string{}}
	for _, name := range []string{"example.com/gpu-memory", "example.com/gpu-core"} {
		var ids []string
		for i := range 80_000 {
			ids = append(ids, fmt.Sprintf("GPU-6bd2bea5-1ae2-4b0c-b6ee-6b0d1f3ab8b1-_-%05d", i))
		}
		d.Registered[name] = ids
		d.Entries = append(d.Entries, DeviceEntry{
			PodUID: "pod", ContainerName: "a", ResourceName: name, DeviceIDs: map[int64][]string{-1: ids},
			AllocResp: []byte{1},
		})
	}
	path := filepath.Join(t.TempDir(), DevicesName)
	if err := WriteDevices(path, d); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadDevices(path); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("read %d entries: %v", len(got.Entries), err)
	}
}

func TestPlacesThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadCPU(filepath.Join(dir, CPUName)); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnusable) {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadMemory(dir); !errors.Is(err, errUnusable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: %v", err)
	}
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := errors.Join(
		unix.Mkfifo(pipe, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, 1<<40),
	); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "it isn't a regular file", large: "it has more than 268435456 bytes"} {
		_, err := ReadDevices(path)
		if text := fmt.Sprint(err); !errors.Is(err, errUnusable) || !strings.Contains(text, path) ||
			!strings.Contains(text, want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// fuzz is for contents that no kubelet writes: what is accepted can be written and read again.
func fuzz[T any](f *testing.F, some T, encode func(T) ([]byte, error), decode func([]byte) (T, error)) {
	data, err := encode(some)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0-3","entries":{"a":{"b":"1,2"}},"checksum":0}`))
	f.Add([]byte(`{"policyName":"Static","machineState":{"0":{"cells":[0]}},"entries":{"a":{"b":[{"size":1}]}}}`))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[{}],"RegisteredDevices":null},"Checksum":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		content, err := decode(data)
		if err != nil {
			if !errors.Is(err, errUnusable) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		written, err := encode(content)
		if err == nil {
			_, err = decode(written)
		}
		if err != nil {
			t.Errorf("%q was read as %+v, and then: %v", data, content, err)
		}
	})
}

func FuzzCPU(f *testing.F)     { fuzz(f, someCPUs, cpuFile, cpuOf) }
func FuzzMemory(f *testing.F)  { fuzz(f, someMemory, memoryFile, memoryOf) }
func FuzzDevices(f *testing.F) { fuzz(f, someDevices, devicesFile, devicesOf) }
