package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/atomicfile"
)

const (
	// confFile is the kubelet's name; the file of an earlier kubelet is replaced.
	confFile = "99-kubelet.conf"
	// raiseTries is how often logind is asked whether it has read the file, after pauses from raiseFirst to raiseLast.
	raiseTries = 5
	raiseFirst = 100 * time.Millisecond
	raiseLast  = 1600 * time.Millisecond
)

// errLimit marks that logind's limit is too short, without words of its own. Somebody has to change that, so it isn't
// tried each second.
var errLimit = errors.New("")

// raise has logind wait as long as the pods may take. A limit that suffices is left as it is.
func (l *Lock) raise(ctx context.Context, conn *dbus.Conn) error {
	limit, err := l.readLimit(ctx, conn)
	if err != nil || limit >= l.Period {
		return err
	}
	file := filepath.Join(l.ConfDir, confFile)
	wanted := l.Period + l.Reserve
	unheeded := func() error {
		return fmt.Errorf("logind waits %s for the pods, which may take %s: it doesn't heed InhibitDelayMaxSec in %s: "+
			"another file there may override it%w", limit, l.Period, file, errLimit)
	}
	if l.told {
		return unheeded() // it has read the file, and would read the same again
	}
	if err := l.override(file, wanted); err != nil {
		return fmt.Errorf("logind waits %s for the pods, which may take %s: write %s: %w: set InhibitDelayMaxSec=%.0f in "+
			"logind.conf yourself%w", limit, l.Period, file, err, wanted.Seconds(), errLimit)
	}
	if err := reload(ctx, conn); err != nil {
		return fmt.Errorf("%w%w", err, errLimit)
	}
	l.told = true
	for tries := range raiseTries {
		pause.For(ctx, pause.After(tries+1, raiseFirst, raiseLast))
		if limit, err = l.readLimit(ctx, conn); err != nil {
			return err
		}
		if limit >= l.Period {
			l.Log.Info("logind waits longer for the pods now", "at_most", limit, "file", file)
			return nil
		}
	}
	return unheeded()
}

func (l *Lock) readLimit(ctx context.Context, conn *dbus.Conn) (time.Duration, error) {
	var micros uint64
	if err := property(ctx, conn, "InhibitDelayMaxUSec", &micros); err != nil {
		return 0, err
	}
	const most = 1 << 50 // microseconds; "infinity" is more
	limit := time.Duration(min(micros, most)) * time.Microsecond
	l.limit.Store(int64(limit))
	return limit, nil
}

func (l *Lock) override(file string, limit time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=%.0f\n", limit.Seconds())
	return atomicfile.WriteDurably(file, []byte(text), 0o644)
}

// reload has logind read its configuration.
func reload(ctx context.Context, conn *dbus.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "main", int32(unix.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("have logind read its configuration again: %w", call.Err)
	}
	return nil
}
