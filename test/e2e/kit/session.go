package kit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// KubectlCommand is a kubectl of the administrator in the namespace that isn't started yet.
func (n *Namespace) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{"--kubeconfig=" + n.bed.ControlPlane.AdminKubeconfig(), "--namespace=" + n.Name}, args...)
	return exec.CommandContext(ctx, n.bed.Tools.Path("kubectl"), all...)
}

// Session is a kubectl that goes on running, and what it has written.
type Session struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan error
	over chan struct{} // closed when kubectl has ended

	mu   sync.Mutex
	text bytes.Buffer
}

// Session starts a kubectl with additions to its environment; it ends with the test at the latest.
func (n *Namespace) Session(env []string, stdin io.Reader, args ...string) *Session {
	n.t.Helper()
	s := &Session{t: n.t, cmd: n.KubectlCommand(n.t.Context(), args...), over: make(chan struct{})}
	s.done = make(chan error, 1)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Stdin = s, s, stdin
	if err := s.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		s.done <- s.cmd.Wait()
		close(s.over)
	}()
	return s
}

// Write takes what kubectl writes.
func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is what kubectl has written so far.
func (s *Session) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Shows waits until the text is written. A kubectl that ends without it fails the test at once.
func (s *Session) Shows(text string) {
	s.t.Helper()
	if err := s.writes(text); err != nil {
		s.t.Fatal(err)
	}
}

// writes waits until the text is written, or kubectl has ended without it.
func (s *Session) writes(text string) (failed error) {
	s.t.Helper()
	Eventually(s.t, fmt.Sprintf("%q in what kubectl writes", text), func() error {
		ended := s.ended()
		out := s.String()
		switch {
		case strings.Contains(out, text):
			return nil
		case ended:
			failed = fmt.Errorf("kubectl has ended and has not written %q, but %q", text, out)
			return nil
		}
		return fmt.Errorf("so far: %q", out)
	})
	return failed
}

func (s *Session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// Ends waits until kubectl ends by itself.
func (s *Session) Ends() error {
	s.t.Helper()
	select {
	case err := <-s.done:
		return err
	case <-time.After(Patience):
		s.t.Fatalf("kubectl doesn't end; it wrote %q", s.String())
		return nil
	}
}

// Kill ends kubectl and waits. A pipe that is its standard input has to be closed before.
func (s *Session) Kill() {
	s.t.Helper()
	// One that has ended can't be killed.
	_ = s.cmd.Process.Kill()
	_ = s.Ends()
}
