package units

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// Shim acts as the shim that this program is called as, and reports whether it is one. The exit code is then the
// process's.
func Shim(argv []string) (code int, is bool) {
	if !slices.Contains(shims, filepath.Base(argv[0])) {
		return 0, false
	}
	output, err := act(argv)
	fmt.Print(output)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(argv[0]), err)
		return 1, true
	}
	return 0, true
}

func act(argv []string) (string, error) {
	if filepath.Base(argv[0]) == "sudo" {
		return "", become(argv[1:])
	}
	return ask(os.Getenv(socketVariable), argv)
}

// become is sudo for somebody who is root already.
func become(argv []string) error {
	if len(argv) == 0 {
		return errors.New("no command")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

// ask has the manager run the command line.
func ask(socket string, argv []string) (string, error) {
	if socket == "" {
		return "", errors.New(socketVariable + " isn't set: only the suite's own commands find their manager")
	}
	body, err := json.Marshal(argv)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://units/",
		bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the manager refuses the request: %s", response.Status)
	}
	var reply answer
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return "", fmt.Errorf("read the manager's answer: %w", err)
	}
	if reply.Error != "" {
		return reply.Output, errors.New(reply.Error)
	}
	return reply.Output, nil
}
