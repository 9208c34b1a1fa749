package credentialprovider

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Versions of request and response. Only v1 has tokens.
const (
	protocolV1   = "credentialprovider.kubelet.k8s.io/v1"
	requestKind  = "CredentialProviderRequest"
	responseKind = "CredentialProviderResponse"
)

var protocolVersions = []string{
	protocolV1, "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1",
}

// What credentials that a provider gave for a token are remembered by.
const (
	cacheByToken   = "Token"
	cacheByAccount = "ServiceAccount"
)

// validate reports all that is wrong with the providers.
func validate(providers []providerConfig) error {
	var errs []error
	first := map[string]string{}
	for _, p := range providers {
		problem := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s.%s: %s", p.where, field, fmt.Sprintf(format, args...)))
		}
		if other, twice := first[p.Name]; twice {
			problem("name", "%q is the name of %s already: a provider may be there once only", p.Name, other)
		} else {
			first[p.Name] = p.where
		}
		p.validate(problem)
		if p.TokenAttributes != nil {
			p.TokenAttributes.validate(p.APIVersion, problem)
		}
	}
	return errors.Join(errs...)
}

// reporter takes what is wrong with a field.
type reporter func(field, format string, args ...any)

func (p *providerConfig) validate(problem reporter) {
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		problem("name", "%q isn't the name of a program in the directory of --image-credential-provider-bin-dir: "+
			"it must not be empty, have slashes or spaces, or be . or ..", p.Name)
	}
	if !slices.Contains(protocolVersions, p.APIVersion) {
		problem("apiVersion", "%q isn't a version that providers are asked in: take one of %q", p.APIVersion,
			protocolVersions)
	}
	if len(p.MatchImages) == 0 {
		problem("matchImages", "the provider would never be asked: name images, such as *.registry.example/team")
	}
	for _, pattern := range p.MatchImages {
		if _, err := parsePattern(pattern); err != nil {
			problem("matchImages", "%q isn't a pattern of images: %v: want host[:port][/path]", pattern, err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		problem("defaultCacheDuration", "must be set, such as 12h, or 0s to ask the provider for each pull")
	case p.DefaultCacheDuration.Duration < 0:
		problem("defaultCacheDuration", "%s is negative: set it to 0s or more", p.DefaultCacheDuration.Duration)
	}
}

func (a *tokenAttributes) validate(version string, problem reporter) {
	if version != protocolV1 {
		problem("tokenAttributes", "tokens are for providers with apiVersion %s only, this one has %q", protocolV1, version)
	}
	if a.Audience == "" {
		problem("tokenAttributes.serviceAccountTokenAudience", "must be set")
	}
	if a.CacheType != cacheByToken && a.CacheType != cacheByAccount {
		problem("tokenAttributes.cacheType", "%q must be %s (credentials hold as long as the token) "+
			"or %s (they hold for all pods of the service account)", a.CacheType, cacheByToken, cacheByAccount)
	}
	switch {
	case a.RequireAccount == nil:
		problem("tokenAttributes.requireServiceAccount", "must be set to true, or to false if the provider is to be asked "+
			"also for pods without a service account")
	case !*a.RequireAccount && len(a.RequiredAnnotations) > 0:
		problem("tokenAttributes.requiredServiceAccountAnnotationKeys", "needs requireServiceAccount: true")
	}
	for _, list := range []struct {
		field string
		keys  []string
	}{
		{"tokenAttributes.requiredServiceAccountAnnotationKeys", a.RequiredAnnotations},
		{"tokenAttributes.optionalServiceAccountAnnotationKeys", a.OptionalAnnotations},
	} {
		for i, key := range list.keys {
			for _, why := range validation.IsQualifiedName(strings.ToLower(key)) {
				problem(list.field, "%q isn't the name of an annotation: %s", key, why)
			}
			if slices.Contains(list.keys[:i], key) {
				problem(list.field, "%q is there twice: remove one", key)
			}
		}
	}
	for i, key := range a.RequiredAnnotations {
		if slices.Contains(a.OptionalAnnotations, key) && !slices.Contains(a.RequiredAnnotations[:i], key) {
			problem("tokenAttributes", "annotation %q is both required and optional: remove it from one of the lists", key)
		}
	}
}

// programOf finds the provider's program, which must be there and executable.
func programOf(p *providerConfig, dir string) (string, error) {
	path := filepath.Join(dir, p.Name)
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("%s: no program %s that can be executed: install the provider, or correct "+
			"--image-credential-provider-bin-dir: %w", p.where, path, errors.Unwrap(err))
	}
	return path, nil
}
