// Package registry serves container images on loopback, with the troubles real
// registries give: passwords, slowness, absence.
//
// Reads and writes: nothing but its memory. Owns: its listener.
//
// Guarantees: Close ends it and forgets the images. Require and Delay take
// effect with the next request.
package registry

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"kubelot.dev/test/testbed/images"
)

// Registry is a running registry.
type Registry struct {
	// Addr is host:port, the first part of an image reference.
	Addr string

	server *http.Server

	mu       sync.Mutex
	user     string
	password string
	delay    time.Duration
	refuses  bool
	pulls    int
	turns    []string
}

// Start serves on a free loopback port until Close.
func Start() (*Registry, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("start registry: %w", err)
	}
	r := &Registry{Addr: listener.Addr().String()}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.server = &http.Server{Handler: r.guard(store), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

// Close ends the registry and its connections.
func (r *Registry) Close() { _ = r.server.Close() }

// Require asks every client for basic authentication; an empty user asks nobody.
func (r *Registry) Require(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

// Delay holds back every answer by d.
func (r *Registry) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Refuse answers everything with 503 Service Unavailable while it is on.
func (r *Registry) Refuse(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = on
}

// Pulls is the number of manifests handed out so far.
func (r *Registry) Pulls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls
}

// Turns are the repositories that were read from, in order: one comes up again where another one was read from in
// between.
func (r *Registry) Turns() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.turns)
}

// Push stores the image, without the host of its reference: docker.io/library/x
// becomes <addr>/library/x, so that a mirror configuration finds it. It returns
// the reference to pull it by.
func (r *Registry) Push(ctx context.Context, img images.Image) (string, error) {
	tag, err := name.NewTag(img.Ref)
	if err != nil {
		return "", fmt.Errorf("push %q: %w", img.Ref, err)
	}
	ref := fmt.Sprintf("%s/%s:%s", r.Addr, tag.RepositoryStr(), tag.TagStr())
	target, err := name.NewTag(ref, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("push %q: %w", ref, err)
	}
	r.mu.Lock()
	auth := authn.FromConfig(authn.AuthConfig{Username: r.user, Password: r.password})
	r.mu.Unlock()
	if err := remote.Write(target, img.Image, remote.WithContext(ctx), remote.WithAuth(auth)); err != nil {
		return "", fmt.Errorf("push %q: %w", ref, err)
	}
	return ref, nil
}

func (r *Registry) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		user, password, delay, refuses := r.user, r.password, r.delay, r.refuses
		r.mu.Unlock()
		select {
		case <-time.After(delay):
		case <-req.Context().Done():
			return
		}
		if refuses {
			http.Error(w, "under maintenance", http.StatusServiceUnavailable)
			return
		}
		if user != "" && !authorized(req, user, password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		if req.Method == http.MethodGet {
			r.count(req.URL.Path)
		}
		next.ServeHTTP(w, req)
	})
}

// count takes a path such as /v2/library/busybox/manifests/1.36 down.
func (r *Registry) count(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	repository, _, manifest := strings.Cut(path, "/manifests/")
	if manifest {
		r.pulls++
	}
	repository, _, blob := strings.Cut(repository, "/blobs/")
	if (manifest || blob) && (len(r.turns) == 0 || r.turns[len(r.turns)-1] != repository) {
		r.turns = append(r.turns, repository)
	}
}

func authorized(req *http.Request, user, password string) bool {
	gotUser, gotPassword, ok := req.BasicAuth()
	return ok &&
		subtle.ConstantTimeCompare([]byte(gotUser), []byte(user)) == 1 &&
		subtle.ConstantTimeCompare([]byte(gotPassword), []byte(password)) == 1
}
