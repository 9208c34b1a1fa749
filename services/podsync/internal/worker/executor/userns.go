package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/atomicfile"
)

// userNSFile is where a pod's ID mapping is kept below its directory, in the kubelet's format, so that either agent
// finds the other's.
const userNSFile = "userns"

// leastLength is the least number of IDs of a pod. The host's own IDs are below it.
const leastLength = 65536

// UserNamespaces hands out ranges of host IDs to pods with hostUsers: false (KEP-127): one range of a fixed length for
// each pod, kept on disk so that it is the same after a restart. Its methods may be called from any goroutine.
type UserNamespaces struct {
	podsDir string
	length  uint32 // IDs of a pod
	max     int    // ranges

	mu   sync.Mutex
	used map[types.UID]span
}

// span are the first and the last range that a pod's mapping covers; range 0 is the host's. A mapping that was made
// with another length may cover part of several.
type span struct{ first, last int }

type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type userNSRecord struct {
	UIDMappings []idMapping `json:"uidMappings"`
	GIDMappings []idMapping `json:"gidMappings"`
}

// NewUserNamespaces reads the ranges that pods below rootDir have already.
func NewUserNamespaces(rootDir string, length uint32, pods int) (*UserNamespaces, error) {
	u := &UserNamespaces{
		podsDir: filepath.Join(rootDir, "pods"), length: max(length, leastLength), max: max(pods, 1),
		used: map[types.UID]span{},
	}
	entries, err := os.ReadDir(u.podsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the user namespaces of the pods on disk: %w", err)
	}
	for _, e := range entries {
		if r, err := u.read(types.UID(e.Name())); err == nil {
			u.used[types.UID(e.Name())] = u.covered(r.UIDMappings[0])
		}
	}
	return u, nil
}

// For is the pod's mapping, or the host's user namespace.
func (u *UserNamespaces) For(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	r, err := u.read(pod.UID)
	if err != nil {
		if r, err = u.allocate(pod.UID); err != nil {
			return nil, fmt.Errorf("give the pod a range of user IDs: %w", err)
		}
	}
	return &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD, Uids: mappings(r.UIDMappings),
		Gids: mappings(r.GIDMappings),
	}, nil
}

// Release gives the pod's range back.
func (u *UserNamespaces) Release(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, uid)
}

func (u *UserNamespaces) covered(m idMapping) span {
	end := uint64(m.HostID) + uint64(max(m.Length, 1)) - 1
	return span{first: int(m.HostID / u.length), last: int(end / uint64(u.length))}
}

func (u *UserNamespaces) taken(index int) bool {
	for _, s := range u.used {
		if s.first <= index && index <= s.last {
			return true
		}
	}
	return false
}

func (u *UserNamespaces) read(uid types.UID) (userNSRecord, error) {
	data, err := os.ReadFile(filepath.Join(u.podsDir, string(uid), userNSFile))
	if err != nil {
		return userNSRecord{}, err
	}
	return parseUserNS(data)
}

// parseUserNS reads a record as both agents write it: one range for users and groups alike, with the pod's root, and
// without an ID of the host's own.
func parseUserNS(data []byte) (userNSRecord, error) {
	var r userNSRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if len(r.UIDMappings) != 1 || len(r.GIDMappings) != 1 || r.UIDMappings[0] != r.GIDMappings[0] {
		return r, errors.New("not a mapping of one range")
	}
	m := r.UIDMappings[0]
	switch {
	case m.ContainerID != 0:
		return r, errors.New("the mapping lacks the pod's root")
	case m.HostID < leastLength:
		return r, errors.New("the mapping has IDs of the host's own")
	case m.Length == 0, uint64(m.HostID)+uint64(m.Length) > 1<<32:
		return r, errors.New("the mapping is empty, or reaches beyond the last ID")
	}
	return r, nil
}

func (u *UserNamespaces) allocate(uid types.UID) (userNSRecord, error) {
	for index := 1; index <= u.max; index++ {
		if u.taken(index) {
			continue
		}
		m := []idMapping{{HostID: uint32(index) * u.length, Length: u.length}}
		r := userNSRecord{UIDMappings: m, GIDMappings: m}
		data, err := json.Marshal(r)
		if err != nil {
			return r, err
		}
		dir := filepath.Join(u.podsDir, string(uid))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return r, err
		}
		if err := atomicfile.WriteDurably(filepath.Join(dir, userNSFile), data, 0o600); err != nil {
			return r, err
		}
		u.used[uid] = span{index, index}
		return r, nil
	}
	return userNSRecord{}, fmt.Errorf("all %d ranges are in use", u.max)
}

func mappings(list []idMapping) []*runtimeapi.IDMapping {
	var out []*runtimeapi.IDMapping
	for _, m := range list {
		out = append(out, &runtimeapi.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length})
	}
	return out
}
