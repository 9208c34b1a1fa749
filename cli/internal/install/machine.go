package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// What systemd is told, a command a line. %s is the prefix.
var (
	activate = []string{
		"systemd-sysusers %s/lib/sysusers.d/kubelot.conf",
		"systemd-tmpfiles --create %s/lib/tmpfiles.d/kubelot.conf",
		"systemctl daemon-reload",
	}
	deactivate = []string{
		"systemctl disable --now kubelot.target", "systemctl disable --now kubelet.service",
		// The target's end doesn't wait for its daemons, and two services outlive it: those that work when the system stops.
		"systemctl stop kubelot-*.service",
	}
	reload = []string{"systemctl daemon-reload"}
)

// machine tells the machine's systemd, unless it is another machine that is installed, or one without systemd.
func (o Options) machine(ctx context.Context, commands []string) error {
	if o.Dest != "" {
		// What systemd does at the next boot for a /usr that has changed, such as to make users. A new file in one of its
		// directories doesn't show.
		now := time.Now()
		if err := os.Chtimes(o.at("/usr"), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) &&
			!errors.Is(err, fs.ErrPermission) { // whose tree it is knows what to do with it
			return err
		}
		return nil
	}
	if !exists("/run/systemd/system") {
		return nil
	}
	for _, line := range commands {
		words := strings.Fields(strings.ReplaceAll(line, "%s", o.Prefix))
		last := words[len(words)-1]
		if filepath.IsAbs(last) && !exists(last) {
			continue
		}
		if o.lacks(last) {
			continue
		}
		out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
		if err != nil && !passes(words[0], err) {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// lacks reports whether the unit that a command is about isn't there: it is another's, or what was done before broke
// off. systemctl disable would fail.
func (o Options) lacks(unit string) bool {
	ext := filepath.Ext(unit)
	return (ext == ".target" || ext == ".service") && !strings.Contains(unit, "*") &&
		!exists(unitBelow(o.Prefix, unit))
}

// passes reports whether a failure matters to nobody: of systemd-tmpfiles, a line that one before systemd 252 doesn't
// know (65), and what somebody has removed while it was at work (73).
func passes(command string, err error) bool {
	var exit *exec.ExitError
	return command == "systemd-tmpfiles" && errors.As(err, &exit) && (exit.ExitCode() == 65 || exit.ExitCode() == 73)
}

// directories makes the directories that are to have these rights only if they weren't there. systemd-tmpfiles does
// that from systemd 252 on.
func (o Options) directories() error {
	if o.Dest != "" || !exists("/run/systemd/system") {
		return nil
	}
	for _, name := range []string{"pods", "plugins", "plugins_registry"} {
		dir := filepath.Join("/var/lib/kubelet", name)
		if exists(dir) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o750); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
