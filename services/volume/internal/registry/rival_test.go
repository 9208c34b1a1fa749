package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// A driver that was killed has left its socket: the next of its name has the name, and keeps it.
func TestAKilledDriverLosesItsName(t *testing.T) {
	dir := t.TempDir()
	old, next := filepath.Join(dir, "old-reg.sock"), filepath.Join(dir, "new-reg.sock")
	kill := serve(t, old, csi("a"))
	registers := func(b book, path string) error {
		b[path] = &entry{file: file{path: path}}
		return b.claim(b[path], topic.Plugin{Type: topic.CSIPlugin, Name: "a", PluginEndpoint: topic.PluginEndpoint{
			Socket: path, Versions: []string{"1.0.0"},
		}}, time.Now())
	}
	b := book{}
	if err := registers(b, old); err != nil {
		t.Fatal(err)
	}
	b[old].standing, b[old].told = registered, true
	if err := registers(b, next); err == nil || !strings.Contains(err.Error(), "registered already") {
		t.Errorf("another takes the name of a driver that lives: %v", err)
	}
	kill()
	if err := registers(b, next); err != nil {
		t.Error(err)
	}
	delete(b, next)
	if left := b.published(); len(left) > 0 {
		t.Errorf("published are %v", left)
	}
}

// A driver that an earlier process has published and that doesn't answer keeps its name only until another comes.
func TestASilentDriverLosesItsName(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "plugins_registry")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	silent := csi("a")
	silent.hang = true
	serve(t, filepath.Join(dir, "old-reg.sock"), silent)
	found, err := scan(dir)
	if err != nil || len(found.sockets) != 1 {
		t.Fatal(found, err)
	}
	const key = "CSIPlugin.a"
	_, b := begin(t, root, map[string]topic.Plugin{key: {
		Type: topic.CSIPlugin, Name: "a", PluginEndpoint: topic.PluginEndpoint{
			Endpoint: "/run/a.sock", Socket: found.sockets[0].path, Instance: found.sockets[0].instance,
			Versions: []string{"1.0.0"}, Since: time.Now(),
		},
	}}, nil)
	next := filepath.Join(dir, "new-reg.sock")
	serve(t, next, csi("a"))
	b.until(t, "the next of the name", func(all map[string]topic.Plugin) bool { return all[key].Socket == next })
}

// A driver of a later version takes the name of one that is there, and the earlier one has it again afterwards.
func TestALaterVersionTakesTheName(t *testing.T) {
	dir, b := start(t, nil, nil)
	at := func(socket string) func(map[string]topic.Plugin) bool {
		return func(all map[string]topic.Plugin) bool { return filepath.Base(all["CSIPlugin.a"].Socket) == socket }
	}
	first, later := csi("a", "1.0.0"), csi("a", "1.0.0", "1.1.0")
	serve(t, filepath.Join(dir, "first.sock"), first)
	b.until(t, "the first", at("first.sock"))
	<-first.told
	serve(t, filepath.Join(dir, "later.sock"), later)
	b.until(t, "the later", at("later.sock"))
	if told := <-later.told; !told.GetPluginRegistered() {
		t.Errorf("the later one hears %v", told)
	}
	if err := os.Remove(filepath.Join(dir, "later.sock")); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the first again", at("first.sock"))
}

// A driver that was refused is tried again, and has the name as soon as that is free.
func TestARefusedDriverIsTriedAgain(t *testing.T) {
	dir, b := start(t, nil, nil)
	first, second := csi("a"), csi("a")
	serve(t, filepath.Join(dir, "1.sock"), first)
	<-first.told
	serve(t, filepath.Join(dir, "2.sock"), second)
	if told := <-second.told; told.GetPluginRegistered() {
		t.Errorf("the second hears %v", told)
	}
	if err := os.Remove(filepath.Join(dir, "1.sock")); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the second", func(all map[string]topic.Plugin) bool {
		return filepath.Base(all["CSIPlugin.a"].Socket) == "2.sock"
	})
}

// Where the kernel gives no notices the directory is scanned each second, else now and then; a notice has it scanned
// almost at once.
func TestWhenTheDirectoryIsScanned(t *testing.T) {
	r := New(t.TempDir(), Ports{})
	r.scanned = time.Unix(1000, 0)
	for want, prepare := range map[time.Duration]func(){
		unwatched: func() { r.watcher, r.noticed = nil, false },
		period:    func() { r.watcher, r.noticed = nobody, false },
		gather:    func() { r.watcher, r.noticed = nil, true },
	} {
		prepare()
		if got := r.scanAt().Sub(r.scanned); got != want {
			t.Errorf("it is scanned after %s, want %s", got, want)
		}
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
