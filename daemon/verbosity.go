package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// VerbosityPath is the path of a daemon's socket that sets the verbosity of its log: PUT with a number, as for --v. It
// holds until the next PUT or the end of the daemon.
const VerbosityPath = "/debug/flags/v"

// debugVerbosity is the --v from which debug lines are logged, as Kubernetes components do.
const debugVerbosity = 4

// ParseVerbosity reads a verbosity: a number of 32 bits.
func ParseVerbosity(text string) (uint32, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("verbosity: %w: want a number such as 2 or 4", err)
	}
	return uint32(v), nil
}

// setVerbosity sets what the log shows. From debugVerbosity on that includes what the Kubernetes libraries log at this
// verbosity.
func (o *logOptions) setVerbosity(v uint32) {
	level, libraries := slog.LevelInfo, klog.Level(0)
	if v >= debugVerbosity {
		level, libraries = slog.Level(-int(v)), klog.Level(v)
	}
	o.level.Set(level)
	o.libraries.set(o.daemon, libraries)
}

// libraries is the verbosity of the Kubernetes libraries, which a process has once: the highest that a daemon in it was
// given. A nil one is that of a process with one daemon.
type libraries struct {
	mu sync.Mutex
	by map[string]klog.Level
}

func (l *libraries) set(daemon string, level klog.Level) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.by[daemon] = level
		level = slices.Max(slices.Collect(maps.Values(l.by)))
	}
	// It parses what is a number.
	_ = new(klog.Level).Set(level.String())
}

// serveVerbosity answers at VerbosityPath.
func (o *logOptions) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	var v uint32
	if err == nil {
		v, err = ParseVerbosity(string(body))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.setVerbosity(v)
	_, _ = fmt.Fprintf(w, "verbosity %d\n", v)
}
