package logquery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// patience bounds a query, as with the kubelet.
	patience = 30 * time.Second
	// dateLayout is how journalctl takes times; without the zone it would take them as local ones.
	dateLayout = "2006-1-2 15:4:5 UTC"
)

// Journal answers queries of services.
type Journal struct {
	// Program is journalctl.
	Program string
	// Files is the directory of logs, for services that don't log to the journal.
	Files fs.FS
}

// Copy writes what the services have logged. Errors become lines of it, because the answer has begun by then.
func (j Journal) Copy(ctx context.Context, w io.Writer, q *Query) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	native, files := j.split(ctx, q.Services)
	if len(native) > 0 {
		j.journal(ctx, w, arguments(q.Options, native))
	}
	if len(files) > 0 && q.Options != (Options{}) {
		say(w, "options present and query resolved to log files for %v\ntry without specifying options", files)
		return
	}
	for _, service := range files {
		j.file(ctx, w, service)
	}
}

// split reports which of the services log to the journal.
func (j Journal) split(ctx context.Context, services []string) (native, files []string) {
	units, err := exec.CommandContext(ctx, j.Program, "--field", "_SYSTEMD_UNIT").Output()
	for _, service := range services {
		if err == nil && known(string(units), service) {
			native = append(native, service)
		} else {
			files = append(files, service)
		}
	}
	return native, files
}

// known reports whether one of the units is the service's, which may be named with its suffix.
func known(units, service string) bool {
	all := strings.Fields(units)
	return slices.Contains(all, service) || slices.Contains(all, service+".service")
}

// arguments are journalctl's.
func arguments(o Options, services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if o.Since != nil {
		args = append(args, "--since="+o.Since.UTC().Format(dateLayout))
	}
	if o.Until != nil {
		args = append(args, "--until="+o.Until.UTC().Format(dateLayout))
	}
	if o.TailLines != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *o.TailLines))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if o.Pattern != "" {
		args = append(args, "--grep="+o.Pattern)
	}
	if o.Boot != nil {
		args = append(args, fmt.Sprintf("--boot=%d", *o.Boot))
	}
	return args
}

func (j Journal) journal(ctx context.Context, w io.Writer, args []string) {
	command := exec.CommandContext(ctx, j.Program, args...)
	command.Stdout, command.Stderr = w, w
	// What journalctl has started may hold on to its output when it is killed.
	command.WaitDelay = time.Second
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil { // journalctl itself says what is wrong
		say(w, "error: journal output not available")
	}
}

// file writes a service's log file: <name>, <name>.log or <name>/<name>.log.
func (j Journal) file(ctx context.Context, w io.Writer, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		err := j.copyFile(ctx, w, name)
		switch {
		case err == nil:
			return
		case !errors.Is(err, fs.ErrNotExist):
			say(w, "error getting log for %s: %v", service, err)
			return
		}
	}
	say(w, "log not found for %s", service)
}

func (j Journal) copyFile(ctx context.Context, w io.Writer, name string) error {
	info, err := fs.Stat(j.Files, name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fs.ErrNotExist
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", name) // to open a pipe would wait for who writes it
	}
	file, err := j.Files.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(w, reader{ctx, file})
	return err
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// say writes a line of the answer. A client that went away is nobody to tell.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, "\n"+format+"\n", args...) }
