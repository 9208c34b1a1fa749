package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// connect makes the administrator's HTTP client. The test bed itself asks for little: with client-go's clientset its
// program would take a minute longer to compile.
func (c *ControlPlane) connect() (*http.Client, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return client, nil
}

// Get reads what the API server has at a path into an object; nil takes nothing.
func (c *ControlPlane) Get(ctx context.Context, path string, into any) error {
	_, err := c.request(ctx, http.MethodGet, path, nil, into)
	return err
}

// Create makes an object in the collection at a path. One that is there already stays.
func (c *ControlPlane) Create(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("create an object in %s: %w", path, err)
	}
	if code, err := c.request(ctx, http.MethodPost, path, body, nil); code != http.StatusConflict {
		return err
	}
	return nil
}

// request returns the answer's status code; those from 400 on are errors.
func (c *ControlPlane) request(ctx context.Context, method, path string, body []byte, into any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return answer.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	case answer.StatusCode >= http.StatusBadRequest:
		return answer.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	case into == nil:
		return answer.StatusCode, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return answer.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer.StatusCode, nil
}
