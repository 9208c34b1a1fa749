package up

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const (
	// program is the executable that runs the crew. It is there for its size (docs/adr/0035).
	program = "kubelot-up"
	// variable is the environment variable that has its Options, as JSON.
	variable = "KUBELOT_UP"
)

// Become makes this process the program that runs the crew, with the same command line. It returns only if that can't
// be.
func Become(o Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), program)
	if err := syscall.Exec(path, os.Args, append(os.Environ(), variable+"="+string(text))); err != nil {
		return fmt.Errorf("become %s: %w", path, err)
	}
	return nil
}

// Main is the program. It returns its exit code.
func Main() int {
	var o Options
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &o); err != nil {
		fmt.Fprintf(os.Stderr, "%s: the environment variable %s isn't what kubelot up sets (%v): run kubelot up\n", program,
			variable, err)
		return 1
	}
	// It is for no child.
	_ = os.Unsetenv(variable)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := Serve(ctx, o, os.Stderr, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		return 1
	}
	return 0
}
