package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/image/pullrecords"
)

// dockerHub is where docker login keeps the credentials of Docker Hub, whose images are named docker.io.
const dockerHub = "index.docker.io"

// credential is what is presented to the registries that its pattern matches.
type credential struct {
	// pattern is host[:port][/path]; * in the host stands for a part between dots.
	pattern string
	auth    *runtimeapi.AuthConfig
	// secret is where it comes from; nil for the node's own.
	secret *pullrecords.Secret
}

// keyring is a list of credentials in the order in which they are tried.
type keyring []credential

// sorted puts longer paths of a registry before shorter ones, because they are more specific; credentials of one
// pattern keep their order.
func (k keyring) sorted() keyring {
	slices.SortStableFunc(k, func(a, b credential) int { return cmp.Compare(b.pattern, a.pattern) })
	return k
}

// addOne adds an entry of a docker config. Its location is a host or a URL; /v1/ and /v2/ stand for the whole registry.
func (k *keyring) addOne(location string, a auth, of *corev1.Secret) error {
	if a.Auth != "" {
		var err error
		if a.Username, a.Password, err = decodeAuth(a.Auth); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(location, "https://") && !strings.HasPrefix(location, "http://") {
		location = "https://" + location
	}
	u, err := url.Parse(location)
	if err != nil || u.Hostname() == "" {
		return errors.New("not the address of a registry")
	}
	dir := u.Path
	if strings.HasPrefix(dir, "/v1/") || strings.HasPrefix(dir, "/v2/") {
		dir = dir[len("/v1"):]
	}
	c := credential{pattern: u.Host + strings.TrimSuffix(dir, "/"), auth: &runtimeapi.AuthConfig{
		Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
	}}
	if of != nil {
		c.secret = &pullrecords.Secret{UID: string(of.UID), Namespace: of.Namespace, Name: of.Name, CredentialHash: a.hash()}
	}
	*k = append(*k, c)
	return nil
}

// hash is what a login is known by again without being kept: the kubelet's (KEP-2535), over a JSON object with its keys
// in this order. The kubelet reads no tokens.
func (a auth) hash() string {
	text, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{a.Username, a.Password, a.Email, a.IdentityToken, a.RegistryToken})
	if err != nil {
		return "" // matches nothing
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// lookup gives the credentials to try for a qualified repository, the best first.
//
// Source: Kubernetes documentation "Images", Interpretation of config.json.
func (k keyring) lookup(repository string) []credential {
	var found, hub []credential
	for _, c := range k {
		switch {
		case matches(c.pattern, repository):
			found = append(found, c)
		case c.pattern == dockerHub && strings.HasPrefix(repository, "docker.io/"):
			hub = append(hub, c)
		}
	}
	if len(found) > 0 {
		return found
	}
	return hub
}

// matches compares hosts part by part, ports exactly, and paths by prefix.
func matches(pattern, repository string) bool {
	patternHost, patternPath, _ := strings.Cut(pattern, "/")
	host, dir, _ := strings.Cut(repository, "/")
	if !strings.HasPrefix(dir, patternPath) {
		return false
	}
	patternHost, patternPort := splitPort(patternHost)
	host, port := splitPort(host)
	globs, parts := strings.Split(patternHost, "."), strings.Split(host, ".")
	if patternPort != port || len(globs) != len(parts) {
		return false
	}
	for i, glob := range globs {
		if ok, err := path.Match(glob, parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitPort(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, ""
	}
	return host, port
}

// fingerprint distinguishes sets of credentials without keeping them.
func fingerprint(credentials []credential) string {
	hash := sha256.New()
	for _, c := range credentials {
		fmt.Fprintf(hash, "%q%q%q%q\n", c.auth.Username, c.auth.Password, c.auth.IdentityToken, c.auth.RegistryToken)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
