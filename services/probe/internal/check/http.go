package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri/handler"
)

// runHTTP sends a request: an answer of 200 to 399 is a success, a redirect to another host one with a warning.
func (c *Checker) runHTTP(ctx context.Context, t Target, action *corev1.HTTPGetAction,
	timeout time.Duration,
) (Result, error) {
	req, err := t.Request(ctx, action, handler.UserAgent("probe"))
	if err != nil {
		return Result{}, err
	}
	client := http.Client{Transport: c.transport, CheckRedirect: handler.FollowLocal, Timeout: timeout}
	resp, err := client.Do(req)
	if err != nil {
		return failure("%s", clip(err.Error())), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, handler.MaxBody))
	if err != nil {
		return Result{}, fmt.Errorf("read the answer of %s: %w", req.URL, err)
	}
	switch {
	case resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest:
		// The body of a failure may hold what Events must not (kubernetes issue 99425).
		return failure("HTTP probe failed with statuscode: %d", resp.StatusCode), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return Result{Success: true, Warning: true, Output: clip("Probe terminated redirects, Response body: " +
			string(body))}, nil
	default:
		return Result{Success: true}, nil
	}
}
