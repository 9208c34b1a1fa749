package registry

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"kubelot.dev/bus/topic"
)

const (
	// maxDriverName is the longest name of a CSI driver (CSI's GetPluginInfo) and of a DRA driver.
	maxDriverName = 63
	maxVersions   = 64
	maxEndpoint   = 4096
	// deviceVersion is the one version of the device plugin API.
	deviceVersion = "v1beta1"
)

// draServices are the services of a DRA driver of which it must have one.
var draServices = []string{"v1.DRAPlugin", "v1beta1.DRAPlugin"}

// plugin is what a socket's answer says, or why it can't be used. The beginnings of the errors are the kubelet's.
func plugin(socket file, info *registerapi.PluginInfo) (topic.Plugin, error) {
	p := topic.Plugin{
		Type: topic.PluginType(info.GetType()), Name: info.GetName(),
		PluginEndpoint: topic.PluginEndpoint{
			Endpoint: info.GetEndpoint(), Socket: socket.path, Instance: socket.instance,
			Versions: info.GetSupportedVersions(),
		},
	}
	if p.Endpoint == "" {
		p.Endpoint = socket.path
	}
	validate, known := validators[p.Type]
	if !known {
		return p, fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s",
			short(string(p.Type)), socket.path)
	}
	if err := errors.Join(checkEndpoint(p.Endpoint), checkVersions(p.Versions), validate(p)); err != nil {
		return p, fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	p.Endpoint = filepath.Clean(p.Endpoint)
	return p, nil
}

// validators judge what is special to a type.
var validators = map[topic.PluginType]func(topic.Plugin) error{
	topic.CSIPlugin:    validateCSI,
	topic.DRAPlugin:    validateDRA,
	topic.DevicePlugin: validateDevice,
}

func checkEndpoint(path string) error {
	switch {
	case len(path) > maxEndpoint:
		return fmt.Errorf("the endpoint has %d characters", len(path))
	case !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") ||
		strings.ContainsFunc(path, unicode.IsControl):
		return fmt.Errorf("the endpoint %q must be the absolute path of a unix socket", short(path))
	}
	return nil
}

func checkVersions(versions []string) error {
	if len(versions) > maxVersions {
		return fmt.Errorf("the plugin names %d versions", len(versions))
	}
	for _, v := range versions {
		if len(v) > maxDriverName || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("%q can't be a version", short(v))
		}
	}
	return nil
}

func validateCSI(p topic.Plugin) error {
	// The API server takes capitals too. The name becomes part of paths.
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(p.Name)); len(problems) > 0 ||
		len(p.Name) > maxDriverName {
		return fmt.Errorf("%q can't be the name of a CSI driver: it is a DNS subdomain of at most %d characters",
			short(p.Name), maxDriverName)
	}
	_, err := csiVersion(p)
	return err
}

// csiVersion is the highest version of CSI that the driver and kubelot speak.
func csiVersion(p topic.Plugin) (*version.Version, error) {
	if len(p.Versions) == 0 {
		return nil, fmt.Errorf("the CSI driver %q names no version", p.Name)
	}
	highest, err := version.HighestSupportedVersion(p.Versions)
	if err != nil {
		return nil, fmt.Errorf("none of the versions %q of the CSI driver %q is supported: it must speak CSI 1: %w",
			p.Versions, p.Name, err)
	}
	return highest, nil
}

func validateDRA(p topic.Plugin) error {
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 || len(p.Name) > maxDriverName {
		return fmt.Errorf("%q can't be the name of a DRA driver: it is a DNS subdomain of at most %d characters",
			short(p.Name), maxDriverName)
	}
	if !slices.ContainsFunc(p.Versions, func(v string) bool { return slices.Contains(draServices, v) }) {
		return fmt.Errorf("none of the services %q of the DRA driver %q is supported, only %q", p.Versions, p.Name,
			draServices)
	}
	return nil
}

func validateDevice(p topic.Plugin) error {
	if !slices.Contains(p.Versions, deviceVersion) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %q", deviceVersion, p.Versions)
	}
	// A domain that only ends in Kubernetes' own, such as mykubernetes.io, is no vendor's either, as in the kubelet.
	if !strings.Contains(p.Name, "/") || strings.Contains(p.Name, "kubernetes.io/") ||
		strings.HasPrefix(p.Name, "requests.") || len(validation.IsQualifiedName("requests."+p.Name)) > 0 {
		return fmt.Errorf("%q can't be an extended resource: it is a domain of the vendor's, a slash and a name",
			short(p.Name))
	}
	return nil
}

// short cuts what a plugin says, for messages.
func short(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
