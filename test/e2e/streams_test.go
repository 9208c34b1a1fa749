package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// Both protocols of kubectl: WebSockets, the default, and SPDY.
var protocols = map[string][]string{
	"websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"spdy":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

// told is the error of a command with what it said.
func told(err error, said string) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

func TestExec(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("shell", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("shell")
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if _, err := kit.OnceShimAnswers(func() error {
				streams := ns.KubectlCommand(t.Context(), "exec", "-i", "shell", "--", "sh", "-c", "cat; echo to stderr >&2")
				stdout.Reset()
				stderr.Reset()
				streams.Env, streams.Stdin, streams.Stdout, streams.Stderr = append(os.Environ(), env...),
					strings.NewReader("from stdin"), &stdout, &stderr
				return told(streams.Run(), stderr.String())
			}); err != nil || stdout.String() != "from stdin" || strings.Count(stderr.String(), "to stderr\n") != 1 {
				t.Errorf("exec -i: %v, %q, %q", err, &stdout, &stderr)
			}
			var out string
			_, err := kit.OnceShimAnswers(func() (err error) {
				out, err = try(t, ns, env, "", "exec", "shell", "--", "sh", "-c", "exit 7")
				return told(err, out)
			})
			if exit := (&exec.ExitError{}); !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Errorf("exit code: %v, %q; want 7", err, out)
			}
			if out, err := try(t, ns, env, "", "exec", "shell", "--", "no-such-program"); err == nil {
				t.Errorf("a program that isn't there: %q", out)
			}
			// script(1) gives kubectl a terminal.
			line := strings.Join(ns.KubectlCommand(t.Context(), "exec", "-it", "shell", "--", "sh", "-c",
				"'tty; until stty size 2>/dev/null | grep 77; do sleep 0.1; done'").Args, " ")
			cmd := exec.CommandContext(t.Context(), "script", "-qec", "stty rows 33 cols 77; "+line, "/dev/null")
			cmd.Env = append(os.Environ(), env...)
			terminal, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(terminal), "/dev/pts/") || !strings.Contains(string(terminal), "33 77") {
				t.Errorf("exec -it: %v, %q", err, terminal)
			}
		})
	}
}

// Files of some size go in and come out whole.
func TestCopy(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("box", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("box")
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	if err := os.WriteFile(dir+"/in", content, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"cp", dir + "/in", "box:/tmp/file"}, {"cp", "box:/tmp/file", dir + "/" + name}} {
				if out, err := try(t, ns, env, "", args...); err != nil {
					t.Fatalf("kubectl %v: %v, %s", args, err, out)
				}
			}
			if got, err := os.ReadFile(dir + "/" + name); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes came back (%v), want %d", len(got), err, len(content))
			}
		})
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("echo", `
  containers: [{name: app, image: "busybox:1.36", stdin: true, command: [sh, -c, 'while read line; do echo "heard $line"; done']}]
`))
	ns.Running("echo")
	in, out := io.Pipe()
	f := ns.Session(nil, in, "attach", "-i", "echo")
	kit.Eventually(t, "the container's answer", func() error {
		if _, err := io.WriteString(out, "hello\n"); err != nil {
			return err
		}
		if text := f.String(); !strings.Contains(text, "heard hello") {
			return fmt.Errorf("so far: %q", text)
		}
		return nil
	})
	out.Close()
	f.Kill()
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, 'mkdir /tmp/www; echo it works > /tmp/www/index.html; exec httpd -f -p 8123 -h /tmp/www']}]
`))
	serves(t, ns, ns.Running("web"), "http://127.0.0.1:8123")
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			f := ns.Session(env, nil, "port-forward", "web", ":8123")
			f.Shows("-> 8123")
			_, rest, _ := strings.Cut(f.String(), "127.0.0.1:")
			port, _, _ := strings.Cut(rest, " ")
			for range 3 {
				if body := fetch(t, "http://127.0.0.1:"+port); body != "it works\n" {
					t.Errorf("through the forwarded port: %q", body)
				}
			}
			f.Kill()
		})
	}
}

func TestDebug(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("patient", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.HeedsTERM(ns.Running("patient"), "app")
	in, out := io.Pipe()
	f := ns.Session(nil, in, "debug", "-i", "patient", "--image=busybox:1.36", "--target=app", "--", "sh")
	f.Shows("command prompt")
	if _, err := io.WriteString(out, "echo ephemeral $((40+2)); ps\n"); err != nil {
		t.Fatal(err)
	}
	f.Shows("ephemeral 42")
	// The debugger sees the target's processes.
	f.Shows("sleep 1000")
	if _, err := io.WriteString(out, "exit\n"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := f.Ends(); err != nil {
		t.Errorf("kubectl debug ended with %v: %s", err, f)
	}
}

// Many sessions at once all get their own output.
func TestManyExecs(t *testing.T) {
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("busy", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("busy")
	sessions := 200
	if bed.Containerd1(t) {
		sessions = 20 // its shim starts one at a time
	}
	client := streamClient(t, ns, "busy", "app")
	var wg sync.WaitGroup
	var late atomic.Int32
	errs := make(chan error, sessions)
	for i := range sessions {
		wg.Go(func() {
			var out bytes.Buffer
			want := strconv.Itoa(i) + "\n"
			again, err := kit.OnceShimAnswers(func() error {
				return client(t.Context(), []string{"sh", "-c", "sleep 1; echo " + strconv.Itoa(i)}, &out)
			})
			if again > 0 {
				late.Add(1)
			}
			if err != nil {
				errs <- fmt.Errorf("session %d, tried again %d times: %w", i, again, err)
			} else if out.String() != want {
				errs <- fmt.Errorf("session %d got %q", i, out.String())
			}
		})
	}
	wg.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if failed++; failed <= 5 {
			t.Error(err)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d sessions failed", failed, sessions)
	}
	if n := late.Load(); n > 0 {
		t.Logf("%d of %d sessions were tried again: %q", n, sessions, kit.ShimIsLate)
	}
}
