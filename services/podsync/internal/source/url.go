package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/source/manifest"
)

// urlTimeout bounds one request, maxRedirects the servers that it may be sent to.
const (
	urlTimeout   = 10 * time.Second
	maxRedirects = 10
)

// URLConfig is the manifest URL (staticPodURL).
type URLConfig struct {
	URL string
	// Header is sent with every request (staticPodURLHeader).
	Header http.Header
	// Every is how often the URL is read (httpCheckFrequency); it must be positive.
	Every    time.Duration
	NodeName string
	// Problem is called when the answer can't be used, from the goroutine of Run; it must not block.
	Problem func(Problem)
	// Client is nil for one with a 10 s time-out.
	Client *http.Client
}

// URL is the source of static pods behind a URL.
type URL struct{ cfg URLConfig }

// NewURL returns the source; it asks nothing before Run.
func NewURL(cfg URLConfig) *URL {
	client := http.Client{Timeout: urlTimeout}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.CheckRedirect = cfg.redirect
	cfg.Client = &client
	return &URL{cfg: cfg}
}

// redirect has the configured headers, which may be secret, go to no other server than the configured one, and to that
// only as safely as configured. net/http keeps back only those that are known to be secret.
func (c URLConfig) redirect(request *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("it was redirected %d times", len(via))
	}
	if first := via[0].URL; request.URL.Host != first.Host || request.URL.Scheme != first.Scheme {
		for name := range c.Header {
			request.Header.Del(name)
		}
	}
	return nil
}

// Name is "http".
func (u *URL) Name() topic.Source { return topic.SourceHTTP }

// Run delivers a set at once and whenever the answer changes.
func (u *URL) Run(ctx context.Context, out chan<- Set) error {
	r := &urlRun{cfg: u.cfg, problems: newProblems(topic.SourceHTTP, u.cfg.Problem)}
	ticker := time.NewTicker(u.cfg.Every)
	defer ticker.Stop()
	defer u.cfg.Client.CloseIdleConnections()
	for {
		if set, changed := r.poll(ctx); changed && ctx.Err() == nil {
			send(ctx, out, set)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// urlRun is the state of one Run.
type urlRun struct {
	cfg      URLConfig
	problems *problems
	// data is the last body, etag and modified what the server said of it.
	data           []byte
	etag, modified string
	failed         string
}

// poll asks once. It answers with a set if there is news.
func (r *urlRun) poll(ctx context.Context) (set Set, changed bool) {
	data, unchanged, err := r.fetch(ctx)
	if err != nil {
		changed = r.failed != err.Error()
		r.failed = err.Error()
		return Set{Source: topic.SourceHTTP, Err: err}, changed
	}
	r.failed = ""
	if unchanged || r.data != nil && bytes.Equal(data, r.data) {
		return Set{}, false
	}
	r.data = data
	pods, trouble, warning := r.decode(data)
	r.problems.set(r.cfg.URL, trouble, warning)
	if trouble != "" && !warning {
		return Set{}, false
	}
	return Set{Source: topic.SourceHTTP, Pods: pods}, true
}

// fetch asks for the document. Unchanged means that the server says it is the last one.
func (r *urlRun) fetch(ctx context.Context) (data []byte, unchanged bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.cfg.URL, nil)
	if err != nil {
		return nil, false, fmt.Errorf("read the static pods: %w: fix staticPodURL", err)
	}
	if r.cfg.Header != nil {
		req.Header = r.cfg.Header.Clone()
	}
	if r.data != nil && r.etag != "" {
		req.Header.Set("If-None-Match", r.etag)
	}
	if r.data != nil && r.modified != "" {
		req.Header.Set("If-Modified-Since", r.modified)
	}
	resp, err := r.cfg.Client.Do(req)
	if err != nil {
		return nil, false, fmt.Errorf("read the static pods: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && r.data != nil {
		return nil, true, nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, false, fmt.Errorf("read the static pods: GET %s: %s", r.cfg.URL, resp.Status)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, manifest.MaxBytes+1))
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("read the static pods: GET %s: %w", r.cfg.URL, err)
	case len(data) > manifest.MaxBytes:
		return nil, false, fmt.Errorf("read the static pods: GET %s: the answer is larger than %d MiB", r.cfg.URL,
			manifest.MaxBytes>>20)
	}
	r.etag, r.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return data, false, nil
}

// decode makes pods of an answer. An empty one wants no pods, as with the kubelet.
func (r *urlRun) decode(data []byte) (pods []*corev1.Pod, trouble string, warning bool) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, "the answer is empty, so there are no static pods: serve a v1 Pod or PodList, or unset staticPodURL", true
	}
	pods, warnings, err := manifest.Pods(data, manifest.Origin{URL: r.cfg.URL, NodeName: r.cfg.NodeName})
	if err == nil {
		err = distinct(pods)
	}
	if err != nil {
		return nil, err.Error(), false
	}
	return pods, strings.Join(warnings, "; "), len(warnings) > 0
}

// distinct is an error where two pods have one name or UID.
func distinct(pods []*corev1.Pod) error {
	seen := map[string]bool{}
	var errs []error
	for _, pod := range pods {
		for _, key := range keys(pod) {
			if seen[key] {
				errs = append(errs, fmt.Errorf("two pods of the list are %q: rename one", key))
			}
			seen[key] = true
		}
	}
	return errors.Join(errs...)
}
