package auth

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// fine are the paths that have a subresource of their own besides proxy (KEP-2862).
var fine = []struct{ path, subresource string }{
	{"/pods", "pods"}, {"/healthz", "healthz"}, {"/configz", "configz"}, {"/runningpods", "pods"},
}

// coarse are the paths that have one in proxy's place.
var coarse = []struct{ path, subresource string }{
	{"/stats", "stats"},
	{"/metrics", "metrics"},
	{"/logs", "log"},
	{"/checkpoint", "checkpoint"},
	{"/statusz", "statusz"},
	{"/flagz", "configz"},
}

// doing are the paths where a GET does something, since a WebSocket can't begin with anything else.
var doing = []string{"/exec", "/attach", "/run", "/portForward"}

// Rules turn requests into what the API server is asked about them.
type Rules struct {
	Node string
	// GetMayDo lets get suffice where a GET runs something: exec, attach, run and portForward (kubernetes issue 119640).
	GetMayDo bool
}

// Attributes are the permissions to ask the API server for, any of which suffices: a verb on a subresource of this
// node.
func (r Rules) Attributes(who user.Info, req *http.Request) []authorizer.Attributes {
	path, verb := req.URL.Path, verbs[req.Method]
	if verb == "get" && !r.GetMayDo && within(path, doing...) {
		verb = "create"
	}
	var list []authorizer.Attributes
	for _, subresource := range subresources(path) {
		list = append(list, authorizer.AttributesRecord{
			User: who, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: subresource, Name: r.Node,
			ResourceRequest: true, Path: path,
		})
	}
	return list
}

func subresources(path string) []string {
	var list []string
	for _, f := range fine {
		if within(path, f.path) {
			list = append(list, f.subresource)
		}
	}
	for _, c := range coarse {
		if within(path, c.path) {
			return append(list, c.subresource)
		}
	}
	return append(list, "proxy")
}

// within reports whether path is one of the parents or below one.
func within(path string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}
