package topic

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"kubelot.dev/bus"
)

// PluginType is what a plugin of the node serves, in the words of its registration (pluginregistration.v1.PluginInfo).
type PluginType string

// The types of plugins.
const (
	CSIPlugin    PluginType = "CSIPlugin"
	DRAPlugin    PluginType = "DRAPlugin"
	DevicePlugin PluginType = "DevicePlugin"
)

// PluginKey is the key of plugin.registered. A name's dots become colons, which no plugin's name has.
func PluginKey(t PluginType, name string) string {
	return bus.Key(string(t), strings.ReplaceAll(name, ".", ":"))
}

// Plugin is the payload of plugin.registered: a plugin that has registered by a socket in the kubelet's directory
// plugins_registry. The tombstone says that its last socket is gone.
type Plugin struct {
	Type PluginType `json:"type"`
	// Name is a CSI driver's, a DRA driver's, or the resource's of a device plugin, such as vendor.example/gpu.
	Name string `json:"name"`
	// PluginEndpoint is the one that registered last.
	PluginEndpoint
	// Others are earlier endpoints of the same name that are still registered, the last one first: so it is while a driver
	// is being updated (KEP-4381). CSI drivers have none.
	Others []PluginEndpoint `json:"others,omitempty"`
}

// PluginEndpoint is where a plugin serves.
type PluginEndpoint struct {
	// Endpoint is the path of the unix socket of the plugin's own service.
	Endpoint string `json:"endpoint"`
	// Socket is the socket by which it registered.
	Socket string `json:"socket"`
	// Instance distinguishes the socket file from an earlier one at the same path. A new one means that the plugin was
	// started again and knows nothing of what its predecessor was told.
	Instance string `json:"instance"`
	// Versions are those of the service that the plugin speaks, as it said; at least one is one that kubelot speaks too.
	Versions []string `json:"versions"`
	// Since is when it registered.
	Since time.Time `json:"since"`
}

func checkPlugin(key string, p Plugin) error {
	if key != PluginKey(p.Type, p.Name) {
		return fmt.Errorf("it is about the plugin %.80q of type %.80q", p.Name, p.Type)
	}
	errs := []error{identifier("name", p.Name), p.check()}
	for _, other := range p.Others {
		errs = append(errs, other.check())
	}
	return errors.Join(errs...)
}

func (e PluginEndpoint) check() error {
	if !strings.HasPrefix(e.Endpoint, "/") {
		return fmt.Errorf("its endpoint %.80q is no absolute path", e.Endpoint)
	}
	return errors.Join(identifier("endpoint", e.Endpoint), identifier("socket", e.Socket),
		identifier("instance", e.Instance), identifier("versions", strings.Join(e.Versions, " ")))
}
