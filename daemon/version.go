package daemon

import (
	"runtime/debug"
	"sync"
)

// version is set by the release build: -ldflags "-X kubelot.dev/daemon.version=v1.2.3".
var version string

// Version is the release, or the commit this executable was built from.
var Version = sync.OnceValue(func() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + dirty
})
