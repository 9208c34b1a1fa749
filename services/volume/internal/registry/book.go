package registry

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
)

const (
	// atOnce is how many plugins are spoken to at a time, for the first time and again: those that never answer take no
	// place from new ones.
	atOnce = 16
	// firstPause and lastPause bound the pause after a failure. A plugin's socket exists before anybody listens on it.
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	// firstLimit and lastLimit bound the time in which a plugin must answer. It grows with the failures: many plugins
	// that hang must not keep others waiting, and one on a loaded node must be heard.
	firstLimit = time.Second
	lastLimit  = 10 * time.Second
)

// standing is how far a socket's plugin is.
type standing int

const (
	// unknown plugins have not answered yet, or were refused.
	unknown standing = iota
	// claimed plugins are published, and are being told.
	claimed
	// registered plugins are published and know it, or an earlier process has published them.
	registered
)

// entry is what is known of one socket.
type entry struct {
	file
	standing standing
	plugin   topic.Plugin
	// told is true once this process has told the plugin that it is registered.
	told      bool
	busy      bool
	failures  int
	notBefore time.Time
	// problem is what was last said of it in the log.
	problem string
}

// lapsed reports whether a plugin of the same name may take the place of the entry's: that was killed and has left its
// socket, or it was published by an earlier process and doesn't answer this one.
func (e *entry) lapsed() bool {
	return e.standing == registered && !e.told && e.failures > 0 || isDead(e.path)
}

// limit is how long the plugin may take for the answer.
func (e *entry) limit() time.Duration { return pause.After(e.failures+1, firstLimit, lastLimit) }

// book is what is known of all sockets, by their paths.
type book map[string]*entry

// recall takes over what an earlier process has published.
func (b book) recall(published map[string]topic.Plugin) {
	for _, p := range published {
		for _, e := range append([]topic.PluginEndpoint{p.PluginEndpoint}, p.Others...) {
			own := topic.Plugin{Type: p.Type, Name: p.Name, PluginEndpoint: e}
			b[e.Socket] = &entry{file: file{e.Socket, e.Instance, e.Since}, standing: registered, plugin: own}
		}
	}
}

// found takes the sockets that exist. Entries of others, and of earlier files at the same paths, go.
func (b book) found(sockets []file) {
	there := make(map[string]bool, len(sockets))
	for _, s := range sockets {
		there[s.path] = true
		if e := b[s.path]; e == nil || e.instance != s.instance {
			b[s.path] = &entry{file: s}
		}
	}
	for path := range b {
		if !there[path] {
			delete(b, path)
		}
	}
}

// due are the entries to be spoken to now, the newest first.
func (b book) due(now time.Time) []*entry {
	free := map[bool]int{true: atOnce, false: atOnce}
	var list []*entry
	for _, e := range b {
		switch {
		case e.busy:
			free[e.failures == 0]--
		case !e.told && !now.Before(e.notBefore):
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(x, y *entry) int {
		return cmp.Or(cmp.Compare(x.failures, y.failures), y.made.Compare(x.made), cmp.Compare(x.path, y.path))
	})
	return slices.DeleteFunc(list, func(e *entry) bool {
		free[e.failures == 0]--
		return free[e.failures == 0] < 0
	})
}

// wakeAt is when an entry becomes due; zero means never.
func (b book) wakeAt(now time.Time) time.Time {
	var at time.Time
	for _, e := range b {
		if !e.told && !e.busy && e.notBefore.After(now) && (at.IsZero() || e.notBefore.Before(at)) {
			at = e.notBefore
		}
	}
	return at
}

// claim gives the name to the plugin of the entry, unless another CSI driver has it: of these only one of a later
// version may take it over. The error is for the plugin.
func (b book) claim(e *entry, p topic.Plugin, now time.Time) error {
	if p.Type == topic.CSIPlugin {
		if err := b.rival(e, p); err != nil {
			return fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
		}
	}
	p.Since = now
	if e.standing == registered && samePlugin(e.plugin, p) {
		p.Since = e.plugin.Since // published by an earlier process
	} else {
		e.standing = claimed
	}
	e.plugin = p
	return nil
}

func (b book) rival(e *entry, p topic.Plugin) error {
	mine, err := csiVersion(p)
	if err != nil {
		return err
	}
	for _, other := range b {
		if other == e || other.standing == unknown || other.plugin.Type != p.Type || other.plugin.Name != p.Name {
			continue
		}
		if other.lapsed() {
			other.standing, other.told = unknown, false
			continue
		}
		theirs, err := csiVersion(other.plugin)
		if err == nil && !theirs.LessThan(mine) {
			return fmt.Errorf("the CSI driver %q is registered already, by %s with version %s", p.Name, other.path, theirs)
		}
	}
	return nil
}

func samePlugin(a, b topic.Plugin) bool {
	return a.Type == b.Type && a.Name == b.Name && a.Endpoint == b.Endpoint && a.Instance == b.Instance &&
		slices.Equal(a.Versions, b.Versions)
}

// failed puts the next attempt off. A plugin that was refused, or couldn't be told for the first time, isn't
// registered.
func (b book) failed(e *entry, refused bool, now time.Time) {
	e.failures++
	e.notBefore = now.Add(pause.After(e.failures, firstPause, lastPause))
	if refused || e.standing == claimed {
		e.standing = unknown
	}
}

// published is what plugin.registered is to have, by its keys.
func (b book) published() map[string]topic.Plugin {
	all := map[string][]topic.Plugin{}
	for _, e := range b {
		if e.standing != unknown {
			key := topic.PluginKey(e.plugin.Type, e.plugin.Name)
			all[key] = append(all[key], e.plugin)
		}
	}
	out := make(map[string]topic.Plugin, len(all))
	for key, list := range all {
		slices.SortFunc(list, func(x, y topic.Plugin) int {
			return cmp.Or(y.Since.Compare(x.Since), cmp.Compare(x.Socket, y.Socket))
		})
		p := list[0]
		if p.Type != topic.CSIPlugin {
			for _, other := range list[1:] {
				p.Others = append(p.Others, other.PluginEndpoint)
			}
		}
		out[key] = p
	}
	return out
}
