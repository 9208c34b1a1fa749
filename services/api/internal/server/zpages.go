package server

import (
	"maps"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"kubelot.dev/kube"
)

// component is the name under which tools know a node's agent.
const component = "kubelet"

// paths are those that /statusz lists.
var paths = []string{
	"/attach/", "/checkpoint/", "/configz", "/containerLogs/", "/debug/flags/v", "/debug/pprof/", "/exec/", "/flagz",
	"/healthz", "/logs/",
	"/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/metrics/slis", "/pods", "/portForward/",
	"/run/", "/runningpods/",
	"/stats/summary", "/statusz",
}

// gets registers handlers for GET, for every package that installs them.
type gets struct{ *http.ServeMux }

func (g gets) Handle(path string, handler http.Handler) { g.ServeMux.Handle("GET "+path, handler) }

// zpages are Kubernetes' pages about a component: its version and paths (KEP-4827), and its flags (KEP-4828).
func (s *Service) zpages(mux *http.ServeMux) {
	flagz.Install(gets{mux}, component, flags(s.env.Flags))
	version := compatibility.NewEffectiveVersionFromString(strings.TrimPrefix(kube.KubernetesVersion, "v"), "", "")
	statusz.Install(gets{mux}, component, statusz.NewRegistry(version, statusz.WithListedPaths(paths)))
}

// flags are those of the command line.
type flags map[string]string

// GetFlagz implements flagz.Reader. What authenticates the node to others isn't shown.
func (f flags) GetFlagz() map[string]string {
	shown := maps.Clone(f)
	for _, name := range []string{"manifest-url-header", "storage-driver-password"} {
		if shown[name] != "" {
			shown[name] = masked
		}
	}
	if address := shown["manifest-url"]; address != "" {
		shown["manifest-url"] = withoutSecrets(address)
	}
	return shown
}

// masked stands for what isn't shown.
const masked = "<masked>"

// withoutSecrets is an address without its user and its query, which may authenticate the node.
func withoutSecrets(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return masked
	}
	if u.User != nil {
		u.User = url.User("masked")
	}
	if u.RawQuery != "" {
		u.RawQuery = "masked"
	}
	return u.String()
}
