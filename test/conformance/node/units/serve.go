package units

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// socketVariable of the environment tells a shim where its manager is.
const socketVariable = "KUBELOT_UNITS_SOCKET"

// shims are the names that the suite's commands go by.
var shims = []string{"sudo", "systemctl", "systemd-run"}

// answer is a manager's reply to a shim.
type answer struct {
	Output string `json:"output"`
	Error  string `json:"error"`
}

// Install makes the shims in a directory, as links to this program, and returns what is to be added to the environment
// of whoever shall find them.
func Install(dir, socket string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("make shims: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make shims: %w", err)
	}
	for _, name := range shims {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.RemoveAll(path), os.Symlink(self, path)); err != nil {
			return nil, fmt.Errorf("make shims: %w", err)
		}
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH"), socketVariable + "=" + socket}, nil
}

// Serve answers shims on a unix socket until stop is called.
func (m *Manager) Serve(socket string) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve units: %w", err)
	}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// It always ends with an error, that of being closed.
		_ = server.Serve(listener)
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}

// ServeHTTP runs the command line in the request.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var argv []string
	if err := json.NewDecoder(r.Body).Decode(&argv); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var reply answer
	output, err := m.do(argv)
	if reply.Output = output; err != nil {
		reply.Error = err.Error()
	}
	// A shim that has gone needs no answer.
	_ = json.NewEncoder(w).Encode(reply)
}
