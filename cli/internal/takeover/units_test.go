package takeover

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"kubelot.dev/bus"
)

// systemctl puts a program of that name into the path. It runs the script, and writes down how it is called.
func systemctl(t *testing.T, script string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"$@\" >>" + log + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// What a crew's bus knew before is of no use after another agent's time.
func TestSwapDisownsTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		well     error
		marked   bool
	}{
		"to the crew":                      {from: "kubelet.service", to: Crew, marked: true},
		"to the kubelet":                   {from: Crew, to: "kubelet.service"},
		"to the kubelet, which isn't well": {from: Crew, to: "kubelet.service", well: errors.New("ill"), marked: true},
	} {
		t.Run(name, func(t *testing.T) {
			systemctl(t, "")
			runDir := t.TempDir()
			if err := os.Mkdir(filepath.Join(runDir, "bus"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := Swap(t.Context(), runDir, c.from, c.to, func(context.Context) error {
				return c.well
			}); !errors.Is(err, c.well) {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(runDir, "bus", bus.Disowned)); (err == nil) != c.marked {
				t.Errorf("the bus's store is marked: %v, want that it is: %v", err, c.marked)
			}
		})
	}
}

// Whatever goes wrong, and whenever somebody presses Ctrl-C, an agent runs in the end.
func TestSwap(t *testing.T) {
	const (
		change = "disable --now a\nenable --now b\n"
		back   = "disable --now b\nenable --now a\n"
	)
	for name, c := range map[string]struct {
		script      string
		interrupted bool
		well        error
		calls, says string
	}{
		"all goes well":        {calls: change},
		"the other isn't well": {well: errors.New("ill"), calls: change + back, says: "ill; a runs again"},
		"the other doesn't start": {
			script: `[ "$*" != "enable --now b" ]`, calls: change + back, says: "a runs again",
		},
		"the first doesn't stop": {
			script: `[ "$*" != "disable --now a" ]`, calls: "disable --now a\n" + back, says: "a runs again",
		},
		"none starts": {
			script: `[ "$1" != enable ]`, calls: change + back, says: "no agent may run",
		},
		"it is interrupted in between": {
			interrupted: true, calls: "disable --now a\n" + back, says: "Ctrl-C; a runs again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := systemctl(t, c.script)
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			if c.interrupted {
				interrupt(errors.New("Ctrl-C"))
			}
			err := Swap(ctx, t.TempDir(), "a", "b", func(context.Context) error { return c.well })
			if got := calls(); got != c.calls {
				t.Errorf("systemctl is called with\n%swant\n%s", got, c.calls)
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

// The crew has ended when the other one starts: its target doesn't wait for its daemons.
func TestSwapWaitsForTheDaemons(t *testing.T) {
	stop := "disable --now " + Crew + "\nstop kubelot-*.service\n"
	for name, c := range map[string]struct {
		from, to string
		well     error
		calls    string
	}{
		"a handback": {from: Crew, to: "k.service", calls: stop + "enable --now k.service\n"},
		"a take-over that fails": {
			from: "k.service", to: Crew, well: errors.New("ill"),
			calls: "disable --now k.service\nenable --now " + Crew + "\n" + stop + "enable --now k.service\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := systemctl(t, "")
			err := Swap(t.Context(), t.TempDir(), c.from, c.to, func(context.Context) error { return c.well })
			if !errors.Is(err, c.well) || calls() != c.calls {
				t.Errorf("%v, and systemctl is called with\n%swant\n%s", err, calls(), c.calls)
			}
		})
	}
}

// A kubelet may leave its unit's cgroup for that of kubeletCgroups. systemd starts it again all the same.
func TestAKubeletOutsideItsUnitsCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		before Process
		script string
		want   string
	}{
		"its cgroup is the unit's":   {Process{PID: 7, Unit: "k.service"}, "exit 1", "k.service"},
		"it has left it":             {Process{PID: 7}, "echo MainPID=7", kubeletUnit},
		"another one is the unit's":  {Process{PID: 7}, "echo MainPID=77", ""},
		"there is no systemd to ask": {Process{PID: 7}, "exit 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			systemctl(t, c.script)
			if got := c.before.UnderSystemd(t.Context()).Unit; got != c.want {
				t.Errorf("its unit is %q, want %q", got, c.want)
			}
		})
	}
}

// A kubelet that ends some seconds after its start doesn't have the node, even while systemd starts it again and again.
func TestStays(t *testing.T) {
	const alive = "echo MainPID=7; echo NRestarts=0; echo ActiveState=active"
	after := func(change string) string {
		// The tenth look is 1.6 seconds after the start.
		return alive + "\n[ $(wc -l <$(dirname $0)/log) -lt 10 ] || { " + change + "; }"
	}
	for name, c := range map[string]struct {
		script string
		stays  bool
	}{
		"it runs":                 {alive, true},
		"it never ran":            {"echo ActiveState=failed", false},
		"it ends":                 {after("echo ActiveState=failed"), false},
		"systemd waits":           {after("echo ActiveState=activating; echo MainPID=0"), false},
		"systemd starts it again": {after("echo MainPID=8; echo NRestarts=1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			systemctl(t, c.script)
			synctest.Test(t, func(t *testing.T) {
				err := Stays(t.Context(), "kubelet.service")
				if (err == nil) != c.stays || err != nil && !strings.Contains(err.Error(), "journalctl -u kubelet.service") {
					t.Errorf("error %v, want that it stays: %v", err, c.stays)
				}
			})
		})
	}
}

// A node isn't given back to the unit by which kubeadm starts kubelot, nor to a kubelet beside a crew that systemd
// doesn't stop.
func TestReturnable(t *testing.T) {
	dir := t.TempDir()
	for script, says := range map[string]string{
		"echo":                                  "",
		"echo KUBELET_EXTRA_ARGS=":              "",
		"echo A=b KUBELOT_HAND_OVER=/run/x.env": "kubelet.service is kubelot's own",
		"exit 1":                                "systemctl show",
	} {
		systemctl(t, script)
		err := Returnable(t.Context(), dir, "kubelet.service")
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("systemctl does %q: %v, want %q", script, err, says)
		}
	}

	systemctl(t, "echo")
	if err := os.WriteFile(filepath.Join(dir, "up"), []byte("read end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), "/bin/sh")
	up.Args, up.Dir = []string{"kubelot", "up", "--run-dir=" + dir}, dir
	stdin, err := up.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Returnable(t.Context(), dir, "kubelet.service"); err == nil ||
		!strings.Contains(err.Error(), "kubelot up runs the crew") {
		t.Errorf("beside kubelot up: %v", err)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	_ = up.Wait() // its exit code says that there was nothing to read
}

// A process of a pod or of another user may call itself as it likes: it keeps nobody from giving the node back.
func TestWhatAnotherUserCallsKubelotUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it runs a process as another user")
	}
	dir := t.TempDir()
	for above := dir; above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "up"), []byte("read end\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), "/bin/sh")
	up.Args, up.Dir = []string{"kubelot", "up", "--run-dir=" + dir}, dir
	up.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdin, err := up.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	if p, err := Up(dir); err != nil || p.PID != 0 {
		t.Errorf("the crew is said to be run by %+v, %v", p, err)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	_ = up.Wait() // its exit code says that there was nothing to read
}
