// Package bed is the place one test cluster lives in: a directory, and the
// names derived from it for what can't live in a directory (a bridge, a
// subnet, a cgroup). Two beds never share anything, so any number run at once.
//
// Reads: nothing. Writes: <dir>/bed.json, and what Setup creates.
// Owns: <dir>, the bridge, the subnet's addresses, the cgroup root.
//
// Guarantees: Clean removes all of it, also what a killed run left, and
// touches nothing else: processes are found by PID file, by the bed's
// containerd socket and by the bed's cgroup, mounts by path.
package bed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// What stays in a bed's directory from run to run.
const (
	bedFile  = "bed.json" // marks it as a bed
	lockFile = ".lock"
	logDir   = "logs"
)

// patience is how long what comes by itself may take on a machine that does other things too.
const patience = time.Minute

// maxSocketPath is the limit of sun_path in unix(7), less the final NUL.
const maxSocketPath = 107

// Bed names everything one test cluster owns.
type Bed struct {
	Dir        string       `json:"dir"`        // absolute, without symlinks
	ID         string       `json:"id"`         // eight hex digits, from Dir
	Bridge     string       `json:"bridge"`     // Linux bridge of the pods
	Subnet     netip.Prefix `json:"subnet"`     // pod addresses
	Gateway    netip.Addr   `json:"gateway"`    // the host's address on the bridge; also the node's
	CgroupRoot string       `json:"cgroupRoot"` // parent of all pod cgroups, absolute as in KubeletConfiguration

	lock   *os.File
	mu     sync.Mutex
	claims []net.Listener // see hold; under mu
}

// Open creates dir if necessary and claims it. It waits a little for a
// previous owner to let go, then fails. Close releases it.
func Open(dir string) (*Bed, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open test bed: %w", err)
	}
	if err := refuseForeign(dir); err != nil {
		return nil, err
	}
	b, err := named(dir)
	if err != nil {
		return nil, err
	}
	if path := b.CRISocket() + ".ttrpc"; len(path) > maxSocketPath {
		return nil, fmt.Errorf("open test bed: %s is longer than the %d bytes a unix socket's path may have; take a "+
			"shorter directory", path, maxSocketPath)
	}
	if b.lock, err = claim(b.Dir, patience); err != nil {
		return nil, err
	}
	if err := b.chooseSubnet(); err != nil {
		b.Close()
		return nil, err
	}
	if err := b.mark(); err != nil {
		b.Close()
		return nil, fmt.Errorf("open test bed: %w", err)
	}
	return b, nil
}

// Attached names what a node has that runs on this machine without a bed. Nothing is claimed, and nothing is to be
// removed.
func Attached(dir string) (*Bed, error) {
	b, err := named(dir)
	if err != nil {
		return nil, err
	}
	b.Bridge, b.CgroupRoot = "cni0", "/"
	return b, nil
}

// Close releases the directory, the subnet and the ports for another Open. It removes nothing.
func (b *Bed) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, claim := range b.claims {
		_ = claim.Close()
	}
	_ = b.lock.Close()
}

// refuseForeign protects a directory that was named by mistake: a bed is
// emptied when it is cleaned.
func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open test bed: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == bedFile {
			return nil
		}
	}
	for _, entry := range entries {
		if entry.Name() != lockFile {
			return fmt.Errorf("open test bed: %s holds %s and is no test bed; take an empty directory", dir, entry.Name())
		}
	}
	return nil
}

// named derives the names.
func named(dir string) (*Bed, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("test bed directory %q: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("test bed directory %q: %w", dir, err)
	}
	sum := sha256.Sum256([]byte(abs))
	id := hex.EncodeToString(sum[:4])
	return &Bed{Dir: abs, ID: id, Bridge: "kt" + id, CgroupRoot: "/kubelot-" + id}, nil
}

// mark makes the directory a bed's, and tells people what the bed has.
func (b *Bed) mark() error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.Path(bedFile), data, 0o644)
}

// Path joins the bed's directory with the elements.
func (b *Bed) Path(elem ...string) string {
	return filepath.Join(append([]string{b.Dir}, elem...)...)
}

// Logs is where every program of the bed has its log and PID file.
func (b *Bed) Logs() string { return b.Path(logDir) }

// CRISocket is the path of the bed's CRI socket.
func (b *Bed) CRISocket() string { return b.Path("containerd.sock") }

// Network is the name of the CNI network; the CNI plugins write it into the
// comments of their iptables rules.
func (b *Bed) Network() string { return "kubelot-" + b.ID }

// Setup creates the bridge and the cgroup root.
func (b *Bed) Setup() error {
	if err := b.createBridge(); err != nil {
		return err
	}
	return b.createCgroups()
}

func claim(dir string, wait time.Duration) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("claim test bed %s: %w", dir, err)
	}
	deadline := time.Now().Add(wait)
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			_ = file.Close()
			return nil, fmt.Errorf("claim test bed %s: %w: another process uses it; stop that one or take another directory",
				dir, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
