package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri/handler"
)

func newHTTPClient() *http.Client {
	return &http.Client{Transport: handler.Transport(), CheckRedirect: handler.FollowLocal}
}

// runHTTP sends a request; whatever the answer is, the hook has run.
func (r *Runner) runHTTP(ctx context.Context, target Target, action *corev1.HTTPGetAction) error {
	req, err := handler.Target{Container: target.Container, PodIP: target.PodIP}.Request(ctx, action,
		handler.UserAgent("lifecycle"))
	if err != nil {
		return err
	}
	err = r.send(req)
	if !isHTTPAnswer(err) {
		return err
	}
	// Hooks with scheme HTTPS were once sent as HTTP, and pods rely on it. Credentials are for HTTPS only.
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if r.send(plain) != nil {
		return err
	}
	if r.Warn != nil {
		r.Warn(target, ReasonHTTPFallback, fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with "+
			"HTTP succeeded", req.URL.Host))
	}
	return nil
}

func (r *Runner) send(req *http.Request) error {
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, handler.MaxBody))
	return resp.Body.Close()
}

// isHTTPAnswer recognises net/http's error, which has no type.
func isHTTPAnswer(err error) bool {
	var e *url.Error
	return errors.As(err, &e) && strings.Contains(e.Err.Error(), "server gave HTTP response to HTTPS client")
}
