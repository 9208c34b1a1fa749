// Package userns has the ranges of host IDs of pods in user namespaces of their own (hostUsers: false, KEP-127), and
// the file that keeps a pod's range.
//
// # Reads, writes
//
// userns below the pod's directory, in the kubelet's format, so that either agent finds the other's. podsync writes it,
// with the pod's first sandbox at the latest.
//
// # Guarantees
//
//   - A range that was read has no ID of the host's own, and begins with the pod's root.
package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/atomicfile"
)

// Least is the least number of IDs of a pod. The host's own IDs are below it.
const Least = 65536

const fileName = "userns"

// Range are a pod's IDs on the host, of users and groups alike: First is its root. The zero value is no range.
type Range struct{ First, Length uint32 }

// Wanted reports whether the pod asks for a user namespace of its own.
func Wanted(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Host is what an ID of the pod is on the host. One that the pod hasn't got would be another pod's.
func (r Range) Host(id int64) (int64, error) {
	if id < 0 || id >= int64(r.Length) {
		return 0, fmt.Errorf("the pod has no ID %d: with hostUsers: false it has those from 0 to %d", id, int64(r.Length)-1)
	}
	return int64(r.First) + id, nil
}

// Has reports whether an ID of the host is one of the pod's.
func (r Range) Has(host uint32) bool { return host >= r.First && host-r.First < r.Length }

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type record struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

// Read returns the range of the pod with that directory. The error is fs.ErrNotExist where it has none yet.
func Read(podDir string) (Range, error) {
	data, err := os.ReadFile(filepath.Join(podDir, fileName))
	if err != nil {
		return Range{}, err
	}
	return parse(data)
}

// parse reads a record as both agents write it: one range for users and groups alike.
func parse(data []byte) (Range, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Range{}, err
	}
	if len(r.UIDMappings) != 1 || len(r.GIDMappings) != 1 || r.UIDMappings[0] != r.GIDMappings[0] {
		return Range{}, errors.New("not a mapping of one range")
	}
	m := r.UIDMappings[0]
	switch {
	case m.ContainerID != 0:
		return Range{}, errors.New("the mapping lacks the pod's root")
	case m.HostID < Least:
		return Range{}, errors.New("the mapping has IDs of the host's own")
	case m.Length == 0, uint64(m.HostID)+uint64(m.Length) > 1<<32:
		return Range{}, errors.New("the mapping is empty, or reaches beyond the last ID")
	}
	return Range{First: m.HostID, Length: m.Length}, nil
}

// Write keeps the range, and makes the pod's directory.
func (r Range) Write(podDir string) error {
	m := []mapping{{HostID: r.First, Length: r.Length}}
	data, err := json.Marshal(record{UIDMappings: m, GIDMappings: m})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(podDir, 0o750); err != nil {
		return err
	}
	return atomicfile.WriteDurably(filepath.Join(podDir, fileName), data, 0o600)
}

// Remove forgets the range of the pod with that directory, if it has one.
func Remove(podDir string) error {
	if err := os.Remove(filepath.Join(podDir, fileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
