package statefile

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/utils/cpuset"

	"kubelot.dev/services/resource/internal/statefile/internal/checksum"
	"kubelot.dev/services/resource/internal/statefile/internal/state"
)

// CPU is the CPU manager's state.
type CPU struct {
	// Policy is none or static.
	Policy string
	// Shared are the CPUs of all containers without CPUs of their own.
	Shared cpuset.CPUSet
	// Containers are the CPUs that containers have for themselves, by pod UID and container name.
	Containers map[string]map[string]cpuset.CPUSet
	// ByID are these CPUs by the container's ID in a file of version 1, which has no pods. It isn't written.
	ByID map[string]cpuset.CPUSet
}

// The bounds of a list of CPUs: Linux has at most 8192 of them.
const (
	maxList = 16 << 10
	maxCPU  = 4 // digits
)

// ReadCPU reads the CPU manager's file.
func ReadCPU(path string) (CPU, error) { return read(path, cpuOf) }

// WriteCPU replaces the CPU manager's file.
func WriteCPU(path string, c CPU) error {
	data, err := cpuFile(c)
	return write(path, data, err)
}

// cpuOf reads the content of the CPU manager's file.
func cpuOf(data []byte) (CPU, error) {
	c, err := decodeCPU(data)
	if err == nil {
		return c, nil
	}
	// A file of version 1 may look as one of version 2: where it has no entries, only the sum differs.
	if old, oldErr := decodeCPUv1(data); oldErr == nil {
		return old, nil
	}
	if hasPodEntries(data) {
		return CPU{}, errPodEntries
	}
	return CPU{}, err
}

func decodeCPU(data []byte) (CPU, error) {
	file := state.CPUManagerCheckpoint{Entries: map[string]map[string]string{}}
	if err := parse(data, &file); err != nil {
		return CPU{}, err
	}
	if found := file.Checksum; found != 0 { // the kubelet reads a file without a sum, too
		file.Checksum = 0
		if err := verify(found, checksum.Of(&file),
			checksum.OfNamed(&file, "CPUManagerCheckpoint", "CPUManagerCheckpointV2")); err != nil {
			return CPU{}, err
		}
	}
	c := CPU{Policy: file.PolicyName, Containers: make(map[string]map[string]cpuset.CPUSet, len(file.Entries))}
	for uid, containers := range file.Entries {
		c.Containers[uid] = make(map[string]cpuset.CPUSet, len(containers))
		for name, text := range containers {
			cpus, err := parseCPUs(text)
			if err != nil {
				return CPU{}, unusable("container %.80q of pod %.80q: %v", name, uid, err)
			}
			c.Containers[uid][name] = cpus
		}
	}
	return c.complete(file.DefaultCPUSet)
}

func decodeCPUv1(data []byte) (CPU, error) {
	file := state.CPUManagerCheckpointV1{Entries: map[string]string{}}
	if err := parse(data, &file); err != nil {
		return CPU{}, err
	}
	if found := file.Checksum; found != 0 {
		file.Checksum = 0
		if err := verify(found, checksum.OfNamed(&file, "CPUManagerCheckpointV1", "CPUManagerCheckpoint"),
			checksum.Of(&file)); err != nil {
			return CPU{}, err
		}
	}
	c := CPU{Policy: file.PolicyName, ByID: make(map[string]cpuset.CPUSet, len(file.Entries))}
	for id, text := range file.Entries {
		cpus, err := parseCPUs(text)
		if err != nil {
			return CPU{}, unusable("container %.80q: %v", id, err)
		}
		c.ByID[id] = cpus
	}
	return c.complete(file.DefaultCPUSet)
}

func (c CPU) complete(shared string) (CPU, error) {
	var err error
	if c.Shared, err = parseCPUs(shared); err != nil {
		return CPU{}, unusable("defaultCpuSet: %v", err)
	}
	if c.Policy == "" {
		return CPU{}, errNoPolicy
	}
	return c, nil
}

var (
	errNoPolicy   = unusable("it names no policy")
	errPodEntries = unusable("it has podEntries, which only kubelets with the feature gate PodLevelResourceManagers know")
)

// hasPodEntries reports whether the file is of a version of the feature gate PodLevelResourceManagers.
func hasPodEntries(data []byte) bool {
	var file struct {
		PodEntries map[string]json.RawMessage `json:"podEntries"`
	}
	return json.Unmarshal(data, &file) == nil && len(file.PodEntries) > 0
}

// parseCPUs reads a list such as 0-3,8. A damaged one must not make a set of billions.
func parseCPUs(text string) (cpuset.CPUSet, error) {
	isNumber := func(r rune) bool { return r >= '0' && r <= '9' }
	if len(text) > maxList {
		return cpuset.CPUSet{}, fmt.Errorf("a list of CPUs has %d bytes", len(text))
	}
	for number := range strings.FieldsFuncSeq(text, func(r rune) bool { return !isNumber(r) }) {
		if len(number) > maxCPU {
			return cpuset.CPUSet{}, fmt.Errorf("%.80q has CPUs that no machine has", text)
		}
	}
	cpus, err := cpuset.Parse(text)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("%.80q isn't a list of CPUs", text)
	}
	return cpus, nil
}

// cpuFile is the content of the CPU manager's file.
func cpuFile(c CPU) ([]byte, error) {
	file := state.CPUManagerCheckpoint{
		PolicyName: c.Policy, DefaultCPUSet: c.Shared.String(), Entries: map[string]map[string]string{},
	}
	for uid, containers := range c.Containers {
		file.Entries[uid] = make(map[string]string, len(containers))
		for name, cpus := range containers {
			file.Entries[uid][name] = cpus.String()
		}
	}
	final := state.CPUManagerCheckpoint{Entries: map[string]map[string]string{}}
	if err := reread(&file, &final); err != nil {
		return nil, err
	}
	final.Checksum = checksum.Of(&final)
	return json.Marshal(final)
}
