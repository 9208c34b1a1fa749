package credentialprovider

import (
	"net"
	"net/url"
	"path"
	"strings"
)

// Matches reports whether a qualified repository, such as docker.io/library/nginx, is one of those that the pattern
// host[:port][/path] is for. Hosts are compared label by label, where a label of the pattern may have wildcards, ports
// exactly, and paths by prefix.
func Matches(pattern, repository string) bool {
	want, err := parsePattern(pattern)
	if err != nil {
		return false
	}
	got, err := parsePattern(repository)
	if err != nil || !strings.HasPrefix(got.Path, want.Path) {
		return false
	}
	wantHost, wantPort := splitPort(want.Host)
	gotHost, gotPort := splitPort(got.Host)
	globs, labels := strings.Split(wantHost, "."), strings.Split(gotHost, ".")
	if wantPort != gotPort || len(globs) != len(labels) {
		return false
	}
	for i, glob := range globs {
		if ok, err := path.Match(glob, labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func parsePattern(pattern string) (*url.URL, error) { return url.Parse("https://" + pattern) }

func splitPort(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, ""
	}
	return host, port
}
