// Package handover gives the kubelet's flags, as a unit has them, to the units of kubelot's daemons.
package handover

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/deploy"
)

// Variable names the environment variable with the path of the file that the daemons' units read their flags from. It
// is set in kubelet.service.
const Variable = "KUBELOT_HAND_OVER"

// crew is the unit of all daemons.
const crew = "kubelot.target"

// Do writes the flags into the file and starts all daemons with them, those that run already again. It doesn't wait for
// the daemons: systemd holds them up until this process has begun, which it does in their stead.
func Do(ctx context.Context, file string, args []string, out io.Writer) error {
	const comment = "Written by kubelet.service. To change a flag, change it there, and: systemctl restart kubelet"
	if err := Write(file, comment, args, os.Environ()); err != nil {
		return err
	}
	// --no-block: a unit that waits here for the crew would keep the crew waiting for the unit.
	again := []string{"--no-block", "try-restart"}
	daemons, err := deploy.Daemons()
	if err != nil {
		return err
	}
	for _, name := range append(daemons, deploy.Compact) {
		// A pattern, since a unit that isn't there is no error then.
		again = append(again, "kubelot-"+name+"*.service")
	}
	// Not by a restart of the target: since systemd 253 that stops what the target propagates its stop to, which is the
	// unit of this process.
	for _, args := range [][]string{again, {"--no-block", "start", crew}} {
		if answer, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("start %s: %w: %s", crew, err, strings.TrimSpace(string(answer)))
		}
	}
	fmt.Fprintf(
		out,
		"kubelet: kubelot's daemons start with the flags in %s; see systemctl list-dependencies %s\n",
		file,
		crew,
	)
	return nil
}

// Write writes the flags into a file for the EnvironmentFile= of the daemons' units, and which proxies the environment
// names, which a drop-in of the kubelet's unit may set.
func Write(file, comment string, args, environ []string) error {
	text, err := environment(args)
	if err != nil {
		return err
	}
	text = proxies(environ) + text
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("hand over the flags: %w", err)
	}
	if err := atomicfile.Write(file, []byte("# "+comment+"\n"+text), 0o600); err != nil {
		return fmt.Errorf("hand over the flags: %w", err)
	}
	return nil
}

// environment is the line of a file for systemd's EnvironmentFile=. systemd takes the value apart twice: when it reads
// the file, and at whitespace when it puts $KUBELOT_ARGS into a command line.
func environment(args []string) (string, error) {
	words := make([]string, 0, len(args))
	for _, arg := range args {
		if strings.ContainsFunc(arg, unicode.IsControl) {
			return "", fmt.Errorf("flag %q has a line break or another control character, which can't be handed over", arg)
		}
		if strings.ContainsAny(arg, " \"'\\") {
			arg = quoted(arg, `\"`)
		}
		words = append(words, arg)
	}
	return "KUBELOT_ARGS=" + quoted(strings.Join(words, " "), "\\\"`$") + "\n", nil
}

// proxies are the lines of the file with the variables that say which proxies the API server and credential providers
// are reached by. One with a control character can't be handed over, and is left out.
func proxies(environ []string) string {
	var out strings.Builder
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
			if !strings.ContainsFunc(value, unicode.IsControl) {
				fmt.Fprintf(&out, "%s=%s\n", name, quoted(value, "\\\"`$"))
			}
		}
	}
	return out.String()
}

// NamesProxies reports whether the environment says something that Write hands over.
func NamesProxies(environ []string) bool { return proxies(environ) != "" }

// quoted is a text in double quotes, with a backslash before each of some characters.
func quoted(text, escaped string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		if strings.ContainsRune(escaped, r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	out.WriteByte('"')
	return out.String()
}
