package credentialprovider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options say which providers there are.
type Options struct {
	// Config is the file of --image-credential-provider-config, or a directory of such files; without it there are no
	// providers.
	Config string
	// BinDir is the directory of --image-credential-provider-bin-dir, which has the programs.
	BinDir string
	// Accounts is nil where there is no API server.
	Accounts Accounts
	Log      *slog.Logger
	// Ran is called after each run of a provider's program; err is nil if it has ended well, whatever it answered. It
	// must not block; nil means that nobody asks.
	Ran func(provider string, took time.Duration, err error)
}

// Providers are the configured providers. Their methods may be called from any goroutine; a nil value has none.
type Providers struct {
	list []*provider
	hash string
}

// Credential is what may be presented to registries.
type Credential struct {
	// Pattern is host[:port][/path], or an URL of a registry: the images that the credential is for, which aren't always
	// those that were asked for.
	Pattern, Username, Password string
	// Account is the pod's service account, if the provider has seen its token; nil if the credential is good for all pods
	// of the node.
	Account *Account
}

// Open reads the configuration. As in the kubelet, a wrong one, or a program that isn't there, is an error.
func Open(o Options) (*Providers, error) {
	if o.Config == "" {
		return nil, nil
	}
	p, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("image credential providers: %w", err)
	}
	return p, nil
}

func open(o Options) (*Providers, error) {
	if _, err := os.Stat(o.BinDir); err != nil {
		return nil, fmt.Errorf("correct --image-credential-provider-bin-dir: %w", err)
	}
	configs, hash, err := readConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("correct what --image-credential-provider-config names: %w", err)
	}
	if err := validate(configs); err != nil {
		return nil, err
	}
	p := &Providers{hash: hash}
	var errs []error
	for i := range configs {
		path, err := programOf(&configs[i], o.BinDir)
		errs = append(errs, err)
		p.list = append(p.list, newProvider(&configs[i], path, o))
	}
	return p, errors.Join(errs...)
}

func newProvider(c *providerConfig, path string, o Options) *provider {
	p := &provider{
		name: c.Name, images: c.MatchImages, hold: c.DefaultCacheDuration.Duration, log: o.Log,
		cache: cache{purged: time.Now()},
		program: program{
			path: path, args: c.Args, apiVersion: c.APIVersion, limit: runLimit,
			ran: func(took time.Duration, err error) {
				if o.Ran != nil {
					o.Ran(c.Name, took, err)
				}
			},
		},
	}
	for _, v := range c.Env {
		p.program.env = append(p.program.env, v.Name+"="+v.Value)
	}
	if c.TokenAttributes != nil {
		p.accounts = &identities{tokenAttributes: *c.TokenAttributes, api: o.Accounts, log: o.Log}
		p.cacheType = c.TokenAttributes.CacheType
	}
	return p
}

// Hash identifies the configuration; empty if there is none.
func (p *Providers) Hash() string {
	if p == nil {
		return ""
	}
	return p.hash
}

// Credentials asks all providers whose images match the qualified repository, side by side. It gives what they have in
// the order of the configuration, also for other images. Each error is of a provider that has failed; the credentials
// are what the others have. It takes as long as the slowest provider, at most for a minute and what the API server
// takes, and ends with ctx.
func (p *Providers) Credentials(ctx context.Context, repository string, pod *corev1.Pod) ([]Credential, []error) {
	if p == nil {
		return nil, nil
	}
	lists, errs := make([][]Credential, len(p.list)), make([]error, len(p.list))
	var asked sync.WaitGroup
	for i, one := range p.list {
		asked.Go(func() {
			logins, account, err := one.credentials(ctx, repository, pod)
			if err != nil {
				errs[i] = fmt.Errorf("credential provider %s: %w", one.name, err)
			}
			for _, pattern := range slices.Sorted(maps.Keys(logins)) {
				lists[i] = append(lists[i], Credential{pattern, logins[pattern].Username, logins[pattern].Password, account})
			}
		})
	}
	asked.Wait()
	return slices.Concat(lists...), slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
