package volume

import (
	"testing"

	"kubelot.dev/bus/topic"
)

// taken are plugins that were published.
type taken []string

func (p *taken) Set(key string, _ topic.Plugin) error { *p = append(*p, key); return nil }
func (p *taken) Delete(string) error                  { return nil }

// The resource daemon calls all plugins but CSI drivers, and is woken for them once they are published.
func TestPluginsWakeTheResourceDaemon(t *testing.T) {
	published, woken := &taken{}, map[topic.PluginType]int{}
	for _, kind := range []topic.PluginType{topic.CSIPlugin, topic.DRAPlugin, topic.DevicePlugin} {
		w := waking{published, func() { woken[kind] = len(*published) }}
		if err := w.Set(string(kind), topic.Plugin{Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	if len(woken) != 2 || woken[topic.DRAPlugin] != 2 || woken[topic.DevicePlugin] != 3 {
		t.Errorf("woken after so many were published: %v", woken)
	}
}
