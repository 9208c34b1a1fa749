package registry

import (
	"github.com/fsnotify/fsnotify"
)

// watch asks the kernel for notices. Without them the directory is scanned each second.
func (r *Registry) watch() {
	w, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		r.say(err)
		return
	}
	r.watcher = w
	r.watchAll([]string{r.dir})
}

func (r *Registry) unwatch() {
	if r.watcher != nil {
		_ = r.watcher.Close()
		r.watcher = nil
	}
}

// watchAll watches these directories too. One that can't be watched makes all be scanned each second.
func (r *Registry) watchAll(dirs []string) {
	if r.watcher == nil {
		return
	}
	for _, dir := range dirs {
		// A directory that was made again needs a new watch; adding one that is watched changes nothing.
		if err := r.watcher.Add(dir); err != nil {
			r.say(err)
			r.unwatch()
			return
		}
	}
}

// nobody is the watcher that there is without notices: its channels deliver nothing.
var nobody = new(fsnotify.Watcher)

// notices delivers what the kernel tells; which of it doesn't matter.
func (r *Registry) notices() *fsnotify.Watcher {
	if r.watcher == nil {
		return nobody
	}
	return r.watcher
}
