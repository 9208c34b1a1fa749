package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/userns"
)

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

// NewUserNamespaces reads the ranges that pods below rootDir have already.
func NewUserNamespaces(rootDir string, length uint32, pods int) (*UserNamespaces, error) {
	u := &UserNamespaces{
		podsDir: filepath.Join(rootDir, "pods"), length: max(length, userns.Least), max: max(pods, 1),
		used: map[types.UID]span{},
	}
	entries, err := os.ReadDir(u.podsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the user namespaces of the pods on disk: %w", err)
	}
	for _, e := range entries {
		if r, err := userns.Read(filepath.Join(u.podsDir, e.Name())); err == nil {
			u.used[types.UID(e.Name())] = u.covered(r)
		}
	}
	return u, nil
}

// For is the pod's mapping, or the host's user namespace.
func (u *UserNamespaces) For(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !userns.Wanted(pod) {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	r, err := userns.Read(filepath.Join(u.podsDir, string(pod.UID)))
	if err != nil {
		if r, err = u.allocate(pod.UID); err != nil {
			return nil, fmt.Errorf("give the pod a range of user IDs: %w", err)
		}
	}
	ids := func() []*runtimeapi.IDMapping { return []*runtimeapi.IDMapping{{HostId: r.First, Length: r.Length}} }
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids(), Gids: ids()}, nil
}

// Release gives the range back of a pod of which nothing runs and nothing is mounted any more.
func (u *UserNamespaces) Release(uid types.UID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := userns.Remove(filepath.Join(u.podsDir, string(uid))); err != nil {
		return fmt.Errorf("give the pod's range of user IDs back: %w", err)
	}
	delete(u.used, uid)
	return nil
}

func (u *UserNamespaces) covered(r userns.Range) span {
	end := uint64(r.First) + uint64(max(r.Length, 1)) - 1
	return span{first: int(r.First / u.length), last: int(end / uint64(u.length))}
}

func (u *UserNamespaces) taken(index int) bool {
	for _, s := range u.used {
		if s.first <= index && index <= s.last {
			return true
		}
	}
	return false
}

func (u *UserNamespaces) allocate(uid types.UID) (userns.Range, error) {
	for index := 1; index <= u.max; index++ {
		if u.taken(index) {
			continue
		}
		r := userns.Range{First: uint32(index) * u.length, Length: u.length}
		if err := r.Write(filepath.Join(u.podsDir, string(uid))); err != nil {
			return r, err
		}
		u.used[uid] = span{index, index}
		return r, nil
	}
	return userns.Range{}, fmt.Errorf("all %d ranges are in use", u.max)
}
