package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/atomicfile"
)

const (
	// freeFailures is how many starts may fail in a row before the next one waits.
	freeFailures = 3
	// longestWait bounds the wait before a start. It is shorter than what systemd grants a start.
	longestWait = 30 * time.Second
	// maxReason is how much of a failure's reason is kept, in bytes.
	maxReason = 1 << 10
)

// retries slow down a daemon that systemd starts again and again because it fails. systemd can do so itself only since
// version 254 (RestartSteps), and then for every restart. A start counts as failed until the daemon has run for a while
// or was told to stop. A nil *retries does nothing.
type retries struct {
	name string
	path string
	out  io.Writer
}

// failed is what is kept of the failed starts, in <run-dir>/metrics/<daemon>.starts: each daemon may write there.
type failed struct {
	Count  int       `json:"count"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// retriesOf is for the process of this name; nil unless systemd started this very process.
func retriesOf(name, runDir string, out io.Writer) *retries {
	if os.Getenv("SYSTEMD_EXEC_PID") != strconv.Itoa(os.Getpid()) {
		return nil
	}
	return &retries{name: name, path: filepath.Join(runDir, "metrics", name+".starts"), out: out}
}

// hold waits, if several starts have failed in a row, and notes that this one has begun. It reports whether the daemon
// is to start: not if it was told to stop meanwhile.
func (r *retries) hold(ctx context.Context) bool {
	if r == nil {
		return true
	}
	before := r.read()
	if wait := waitBefore(before.Count); wait > 0 {
		text := fmt.Sprintf("kubelot-%s has failed %d times in a row and waits %s before it starts again", r.name,
			before.Count, wait)
		if before.Reason != "" {
			text += "; the last time: " + before.Reason
		}
		fmt.Fprintln(r.out, text)
		// What systemctl status shows. Without systemd's socket there is nobody to show it to.
		_, _ = systemd.SdNotify(false, "STATUS="+oneLine(text))
		pause.For(ctx, wait)
	}
	if ctx.Err() != nil {
		r.well()
		return false
	}
	r.write(failed{Count: before.Count + 1, Reason: before.Reason, At: time.Now()})
	return true
}

// waitBefore is the wait after that many failures in a row.
func waitBefore(failures int) time.Duration {
	if failures < freeFailures {
		return 0
	}
	return min(time.Second<<min(failures-freeFailures, 10), longestWait)
}

// steadily forgets the failures once the daemon has run for a while; the function returned ends that.
func (r *retries) steadily() (stop func()) {
	if r == nil {
		return func() {}
	}
	timer := time.AfterFunc(pause.Steady, r.well)
	return func() { timer.Stop() }
}

// ended notes how the daemon ended. An orderly end, as when it was told to stop, is no failure.
func (r *retries) ended(err error) {
	switch {
	case r == nil:
	case err == nil:
		r.well()
	default:
		now := r.read()
		// systemd's status and this file take one line.
		now.Reason = cut(oneLine(err.Error()), maxReason)
		r.write(now)
	}
}

// well forgets the failures.
func (r *retries) well() {
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.complain(err)
	}
}

func (r *retries) read() failed {
	var f failed
	data, err := readOwn(r.path)
	if err != nil || json.Unmarshal(data, &f) != nil || f.Count < 0 {
		return failed{} // none, or one that nobody can read: the start doesn't wait
	}
	return f
}

// readOwn reads a small file of this daemon's own. Other daemons can write into its directory: what they put there
// must not hold up the start, as a pipe would, or be taken for this daemon's.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || int(stat.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s isn't this daemon's own file", path)
	}
	return io.ReadAll(io.LimitReader(file, 8*maxReason))
}

func (r *retries) write(f failed) {
	data, err := json.Marshal(f)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(r.path), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(r.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		r.complain(err)
	}
}

func (r *retries) complain(err error) {
	fmt.Fprintf(r.out, "kubelot-%s: failed starts are not counted, so restarts are not slowed down: %v\n", r.name, err)
}
