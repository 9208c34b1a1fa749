package deviceplugin

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin/plugintest"
)

func TestAnAnnouncedPlugin(t *testing.T) {
	b := newBed(t, nil)
	dir := t.TempDir() // such sockets aren't in the server's directory
	at := topic.PluginEndpoint{Endpoint: filepath.Join(dir, "p.sock"), Instance: "1"}
	serve := func(socket, id string) *plugintest.Plugin {
		p := &plugintest.Plugin{Resource: gpu}
		p.List(plugintest.Device(id))
		p.Serve(t, socket)
		return p
	}
	first := serve(at.Endpoint, "a")
	b.Add(gpu, at) // before it runs
	b.run()
	b.until(gpu + " a true []")
	b.Add(gpu, at) // twice
	b.Add(nic, topic.PluginEndpoint{Endpoint: filepath.Join(dir, "none.sock")})
	first.Stop()
	b.until(gpu + " away")
	// Its socket is announced still: it is connected to again.
	second := serve(at.Endpoint, "b")
	b.until(gpu + " b true []")
	// Another instance takes over without a pause.
	third := serve(filepath.Join(dir, "3.sock"), "c")
	b.Add(gpu, topic.PluginEndpoint{Endpoint: filepath.Join(dir, "3.sock"), Instance: "3"})
	second.Drain()
	b.until(gpu+" c true []", gpu+" away")
	b.Remove(gpu)
	b.until(gpu + " away")
	third.Drain()
	if calls := first.Calls(); !slices.Equal(calls, []string{"GetDevicePluginOptions", "ListAndWatch"}) {
		t.Errorf("the first was called %q", calls)
	}
}

// A plugin that registers takes the place of one that was announced, which isn't asked any more.
func TestAnAnnouncedPluginIsReplaced(t *testing.T) {
	b := start(t, nil)
	announced := b.serve(&plugintest.Plugin{}, "announced.sock", plugintest.Device("a"))
	b.Add(gpu, topic.PluginEndpoint{Endpoint: filepath.Join(b.dir, "announced.sock")})
	b.until(gpu + " a true []")
	other := b.serve(&plugintest.Plugin{}, "other.sock", plugintest.Device("b"))
	b.register(other)
	b.until(gpu+" b true []", gpu+" away")
	time.Sleep(3 * firstPause) // it would be connected to again by now
	announced.Drain()
	b.Remove(gpu) // it has gone already
	if _, err := b.Allocate(t.Context(), gpu, []string{"b"}); err != nil {
		t.Error(err)
	}
	other.Stop()
	b.until(gpu + " away")
	if calls := announced.Calls(); len(calls) != 2 {
		t.Errorf("the one that was announced is called %q", calls)
	}
}
