package node

import (
	"context"
	"fmt"
	"net/http"
)

// healthy asks the agent itself, where no API server knows the node.
func (n *Node) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", n.HealthPort), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("agent's /healthz: %s", answer.Status)
	}
	return nil
}
