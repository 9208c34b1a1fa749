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
