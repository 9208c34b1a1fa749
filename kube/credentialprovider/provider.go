package credentialprovider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/kube/flight"
)

// provider is one program, with its answers.
type provider struct {
	name      string
	images    []string
	hold      time.Duration // of an answer that doesn't say how long it holds
	program   program
	log       *slog.Logger
	accounts  *identities // nil if the provider wants no tokens
	cacheType string
	asked     flight.Group[map[string]login]
	cache     cache
}

// credentials gives what the provider has for the repository; account is whose token it has seen, if any.
func (p *provider) credentials(ctx context.Context, image string, pod *corev1.Pod,
) (logins map[string]login, account *Account, err error) {
	if !slices.ContainsFunc(p.images, func(pattern string) bool { return Matches(pattern, image) }) {
		return nil, nil, nil
	}
	id := &identity{}
	if p.accounts != nil {
		if id, err = p.accounts.of(ctx, pod); err != nil && ctx.Err() == nil {
			p.log.Warn("a credential provider can't be asked, pulling without it", "provider", p.name, "image", image,
				"namespace", pod.Namespace, "pod", pod.Name, "error", err)
		}
		if id == nil || err != nil {
			return nil, nil, err
		}
	}
	if id.account != (Account{}) {
		account = &id.account
	}
	owner := p.ownerOf(id)
	if logins, found := p.cache.find(image, owner); found {
		return logins, account, nil
	}
	logins, err = p.asked.Do(ctx, key(image, id.tokenHash(), annotationsKey(id.annotations)),
		func(ctx context.Context) (map[string]login, error) { return p.ask(ctx, image, id, owner) })
	return logins, account, err
}

// ask runs the program, and keeps its answer as long as that holds.
func (p *provider) ask(ctx context.Context, image string, id *identity, owner string) (map[string]login, error) {
	resp, words, err := p.program.run(ctx, request{Image: image, Token: id.token, Annotations: id.annotations})
	var base string
	if err == nil {
		base, err = p.check(resp, image, id)
	}
	log := p.log.With("provider", p.name, "image", image, "stderr", withoutToken(words, id))
	switch {
	case errors.Is(err, flight.ErrNobodyWaits):
		return nil, err
	case err != nil:
		log.Warn("a credential provider has failed, pulling without its credentials", "error", err)
		return nil, err
	}
	log.Debug("a credential provider has answered", "credentials", len(resp.Auth))
	hold := p.hold
	if resp.CacheDuration != nil {
		hold = resp.CacheDuration.Duration
	}
	if hold > 0 {
		p.cache.keep(base, owner, resp.Auth, hold)
	}
	return resp.Auth, nil
}

// check returns what the answer is good for.
func (p *provider) check(resp response, image string, id *identity) (base string, err error) {
	if id.token != "" && p.cacheType != cacheByToken {
		for _, l := range resp.Auth {
			if l.Password == id.token {
				return "", fmt.Errorf("it has returned the service account's token as a password, "+
					"which only a provider with cacheType %s may do", cacheByToken)
			}
		}
	}
	switch resp.CacheKeyType {
	case cacheImage:
		return image, nil
	case cacheRegistry:
		return registryOf(image), nil
	case cacheGlobal:
		return globalKey, nil
	}
	return "", fmt.Errorf("its answer has cacheKeyType %.100q, want %s, %s or %s", resp.CacheKeyType, cacheImage,
		cacheRegistry, cacheGlobal)
}

// ownerOf is whose the answers for the identity are; empty for those that are for all pods.
func (p *provider) ownerOf(id *identity) string {
	if id.account == (Account{}) {
		return ""
	}
	a := id.account
	parts := []string{a.Namespace, a.Name, a.UID, annotationsKey(id.annotations)}
	if p.cacheType == cacheByToken {
		parts = append(parts, id.tokenHash())
	}
	return key(parts...)
}

// withoutToken hides the token in what a program has written, which is logged.
func withoutToken(words string, id *identity) string {
	if id.token == "" {
		return words
	}
	return strings.ReplaceAll(words, id.token, "(token)")
}
