package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

const (
	// period is the pause between two scans without a notice, and unwatched that where the kernel gives no notices.
	period    = 10 * time.Second
	unwatched = time.Second
	// gather is the least pause between two scans: many sockets may appear at once.
	gather = 20 * time.Millisecond
)

// Publisher is the writer of plugin.registered.
type Publisher interface {
	Set(key string, p topic.Plugin) error
	Delete(key string) error
}

// Ports are what the registry works with.
type Ports struct {
	Publisher Publisher
	// Published is what an earlier process has left on the bus.
	Published map[string]topic.Plugin
	// Changed is called with each new set of plugins, from the goroutine of Run; it must not block.
	Changed func(map[string]topic.Plugin)
	// Watched is told of the loop that is to go on until ctx ends (daemon.Pulse); nil for nobody.
	Watched func(ctx context.Context, loops ...chan<- func())
	Log     *slog.Logger
}

// Registry knows the plugins. Its Run is the goroutine that owns the book.
type Registry struct {
	dir   string
	ports Ports
	loop  *loop.Loop
	now   func() time.Time

	book      book
	published map[string]topic.Plugin
	watcher   *fsnotify.Watcher
	// scanned is when the directory was last scanned; noticed is true where something has happened in it since.
	scanned time.Time
	noticed bool
	// strange and trouble are what was last said of the directory.
	strange map[string]bool
	trouble string
}

// New makes the registry of the plugins below rootDir. It starts nothing.
func New(rootDir string, ports Ports) *Registry {
	return &Registry{
		dir: filepath.Join(rootDir, "plugins_registry"), ports: ports, loop: loop.New(nil), now: time.Now,
		book: book{}, published: map[string]topic.Plugin{}, strange: map[string]bool{},
	}
}

// Run finds plugins until ctx ends. They stay published.
func (r *Registry) Run(ctx context.Context) error {
	defer r.loop.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the registration of plugins stops"))
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of plugins: %w", err)
	}
	r.watch()
	defer r.unwatch()
	r.book.recall(r.ports.Published)
	maps.Copy(r.published, r.ports.Published)
	if r.ports.Changed != nil {
		r.ports.Changed(r.published)
	}
	if r.ports.Watched != nil {
		r.ports.Watched(ctx, r.loop.Inbox())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-r.loop.Changes():
			change()
		case <-r.notices().Events:
			r.noticed = true
		case err := <-r.notices().Errors:
			r.ports.Log.Debug("notices of changes among the plugins' sockets were lost", "error", err)
			r.noticed = true
		case <-timer.C:
		}
		if !r.now().Before(r.scanAt()) {
			r.look()
		}
		r.begin(ctx)
		r.publish()
		timer.Reset(r.rest())
	}
}

// scanAt is when the directory is to be scanned.
func (r *Registry) scanAt() time.Time {
	switch {
	case r.noticed:
		return r.scanned.Add(gather)
	case r.watcher == nil:
		return r.scanned.Add(unwatched)
	}
	return r.scanned.Add(period)
}

// rest is how long nothing has to be done if nothing happens.
func (r *Registry) rest() time.Duration {
	now, at := r.now(), r.scanAt()
	if due := r.book.wakeAt(now); !due.IsZero() && due.Before(at) {
		at = due
	}
	return max(0, at.Sub(now))
}

// look scans the directory.
func (r *Registry) look() {
	r.scanned, r.noticed = r.now(), false
	if r.watcher == nil {
		r.watch()
	}
	found, err := scan(r.dir)
	r.say(err)
	if err != nil && !errors.Is(err, errTooMany) {
		return // what is known stays as it is
	}
	r.book.found(found.sockets)
	r.watchAll(found.dirs)
	strange := map[string]bool{}
	for _, path := range found.strange {
		if strange[path] = true; !r.strange[path] {
			r.ports.Log.Warn("ignoring a file among the sockets of plugins: it is no socket", "path", path)
		}
	}
	r.strange = strange
}

// say logs what is wrong with the directory, once.
func (r *Registry) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.trouble && text != "" {
		r.ports.Log.Error("can't find all plugins", "error", text)
	}
	r.trouble = text
}

// begin speaks to the plugins that are due.
func (r *Registry) begin(ctx context.Context) {
	for _, e := range r.book.due(r.now()) {
		e.busy = true
		limit := e.limit()
		r.loop.Go(func() {
			err := r.shake(ctx, e, limit)
			r.loop.Do(ctx, func() { r.finished(e, err) })
		})
	}
}

// register has the owner of the book give the plugin its name and publish it.
func (r *Registry) register(ctx context.Context, e *entry, p topic.Plugin) error {
	answer, err := loop.Ask(ctx, r.loop, func() error {
		if r.book[e.path] != e {
			return errors.New("RegisterPlugin error -- its socket is gone")
		}
		err := r.book.claim(e, p, r.now())
		r.publish()
		return err
	})
	if err != nil {
		return err
	}
	return answer
}

// finished takes the end of a handshake.
func (r *Registry) finished(e *entry, err error) {
	e.busy = false
	if r.book[e.path] != e {
		return
	}
	if err == nil {
		e.standing, e.told, e.failures, e.problem = registered, true, 0, ""
		r.ports.Log.Info("plugin registered", "plugin", e.plugin.Name, "type", e.plugin.Type, "socket", e.path,
			"endpoint", e.plugin.Endpoint)
		return
	}
	var refused refusal
	r.book.failed(e, errors.As(err, &refused), r.now())
	// A socket on which nobody listens yet is nothing to speak of.
	quiet := e.failures == 1 && !errors.As(err, &refused)
	if text := err.Error(); text != e.problem && !quiet {
		e.problem = text
		r.ports.Log.Warn("plugin can't be registered, retrying", "socket", e.path, "error", text)
	}
}

// publish says what has changed.
func (r *Registry) publish() {
	now := r.book.published()
	changed := false
	for key, p := range now {
		if before, known := r.published[key]; !known || !reflect.DeepEqual(before, p) {
			changed = true
			r.note(key, r.ports.Publisher.Set(key, p))
		}
	}
	for key, p := range r.published {
		if _, still := now[key]; !still {
			changed = true
			r.ports.Log.Info("plugin is gone", "plugin", p.Name, "type", p.Type, "socket", p.Socket)
			r.note(key, r.ports.Publisher.Delete(key))
		}
	}
	r.published = now
	if changed && r.ports.Changed != nil {
		r.ports.Changed(now)
	}
}

func (r *Registry) note(key string, err error) {
	if err != nil {
		r.ports.Log.Error("can't publish a plugin", "plugin", key, "error", err)
	}
}
