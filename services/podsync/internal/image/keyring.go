package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/kube/credentialprovider"
	"kubelot.dev/services/podsync/internal/image/pullrecords"
)

// dockerHub is where docker login keeps the credentials of Docker Hub, whose images are named docker.io.
const dockerHub = "index.docker.io"

// credential is what is presented to the registries that its pattern matches.
type credential struct {
	// pattern is host[:port][/path]; * in the host stands for a part between dots.
	pattern string
	auth    *runtimeapi.AuthConfig
	// secret or account is where it comes from; neither is set for the node's own.
	secret  *pullrecords.Secret
	account *pullrecords.Account
}

// whose is how records know the credential.
func (c credential) whose() pullrecords.Credentials {
	switch {
	case c.secret != nil:
		return pullrecords.Credentials{KubernetesSecrets: []pullrecords.Secret{*c.secret}}
	case c.account != nil:
		return pullrecords.Credentials{KubernetesServiceAccounts: []pullrecords.Account{*c.account}}
	}
	return pullrecords.Credentials{NodePodsAccessible: true}
}

// keyring is a list of credentials in the order in which they are tried.
type keyring []credential

// sorted puts longer paths of a registry before shorter ones, because they are more specific; credentials of one
// pattern keep their order.
func (k keyring) sorted() keyring {
	slices.SortStableFunc(k, func(a, b credential) int { return cmp.Compare(b.pattern, a.pattern) })
	return k
}

// addProvided adds what credential providers have answered.
func (k *keyring) addProvided(list []credentialprovider.Credential) (problems []string) {
	for _, c := range list {
		before := len(*k)
		if err := k.addOne(c.Pattern, auth{Username: c.Username, Password: c.Password}, nil); err != nil {
			problems = append(problems, fmt.Sprintf("credentials of a provider for %q: %v", c.Pattern, err))
		} else if c.Account != nil {
			(*k)[before].account = (*pullrecords.Account)(c.Account)
		}
	}
	return problems
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
	// What the node has is a keyring of its own: it doesn't take the place of what the pod has for Docker Hub.
	if node := slices.IndexFunc(k, func(c credential) bool { return c.secret == nil }); node > 0 {
		return append(k[:node].lookup(repository), k[node:].lookup(repository)...)
	}
	var found, hub []credential
	for _, c := range k {
		switch {
		case credentialprovider.Matches(c.pattern, repository):
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

// fingerprint distinguishes sets of credentials without keeping them.
func fingerprint(credentials []credential) string {
	hash := sha256.New()
	for _, c := range credentials {
		fmt.Fprintf(hash, "%q%q%q%q\n", c.auth.Username, c.auth.Password, c.auth.IdentityToken, c.auth.RegistryToken)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
