package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/running"
)

const (
	// lookEvery is how often processes and healths are looked at.
	lookEvery = 100 * time.Millisecond
	// readPatience bounds one reading of the healths: the bus may be restarting.
	readPatience = 2 * time.Second
)

// Options say what is moved and how long it may take.
type Options struct {
	// BinDir has the links by which the crew was started.
	BinDir string
	// To is the version: its name next to BinDir, its directory, or an executable in that.
	To string
	// Daemons are moved; none means all.
	Daemons []string
	// Patience is how long a daemon may take until it is well.
	Patience time.Duration
	// Settle is how long it must stay well before the next one is moved.
	Settle time.Duration
	// DryRun only says what would be done.
	DryRun bool
	// Command is the link of the command line itself, which is moved with the whole crew, as those are that go with it.
	Command string
	Bus     *bus.Conn
	Out     io.Writer
}

// move is one daemon's way.
type move struct {
	link
	kind       kind
	executable string // the new one, with all links followed; empty if the daemon is gone
	to         string // the link's new target
	back       string // the link's target if the daemon goes back; empty if there is no way back
	process    running.Process
}

// Run moves the daemons. An error says how far it came; the report says it, too.
func Run(ctx context.Context, o Options) (Report, error) {
	u := &upgrade{Options: o}
	err := u.run(ctx)
	report := Report{Version: u.version, DryRun: o.DryRun, Steps: u.steps}
	if err != nil {
		report.Error = err.Error()
	}
	return report, err
}

func (u *upgrade) run(ctx context.Context) error {
	moves, err := u.prepare(ctx)
	if err != nil {
		return err
	}
	if u.before, err = u.healths(ctx, u.Patience); err != nil {
		return fmt.Errorf("read how the daemons are, before anything is moved: %w", err)
	}
	for i, m := range moves {
		if m.kind == moved && m.process.Executable == m.executable && !m.process.Replaced && m.target == m.to {
			u.done(m, Unchanged, "kubelot-%s runs %s already", m.name, u.version)
			continue
		}
		if u.DryRun {
			u.done(m, m.outcome(), "%s", m.intention(u.version))
			continue
		}
		if err := u.one(ctx, m); err != nil {
			return fmt.Errorf("%w; %d of %d daemons run %s", err, i, len(moves), u.version)
		}
	}
	return u.commands()
}

// upgrade is one run.
type upgrade struct {
	Options
	dir     string // of the new executables
	version string
	systemd bool // it runs the crew
	before  healths
	steps   []Step
}

// done prints what has become of a daemon, and keeps it for the report.
func (u *upgrade) done(m move, o Outcome, format string, args ...any) {
	s := Step{Daemon: m.name, Outcome: o, From: m.target, To: m.to, Text: fmt.Sprintf(format, args...)}
	u.steps = append(u.steps, s)
	fmt.Fprintln(u.Out, s.Text)
}

// await waits until the daemon runs the executable in another process than before and the crew is as well as it was,
// and has been for the time to settle.
func (u *upgrade) await(ctx context.Context, m move, executable string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, u.Patience, fmt.Errorf("waited %s", u.Patience))
	defer cancel()
	var since time.Time
	steady := 0
	for {
		p := running.Of(m.path)
		problem := fmt.Sprintf("no process of kubelot-%s runs %s", m.name, executable)
		if p.PID != 0 && p.PID != m.process.PID && p.Executable == executable {
			problem = u.look(ctx, m.name, p.PID)
		}
		switch {
		case problem != "" || p.PID != steady:
			since, steady = time.Now(), p.PID
		case time.Since(since) >= u.Settle:
			return nil
		}
		pause.For(ctx, lookEvery)
		if ctx.Err() != nil {
			if problem == "" {
				problem = "it was well for too short"
			}
			return fmt.Errorf("%s (%w)", problem, context.Cause(ctx))
		}
	}
}

// look says what is wrong with the crew; empty if nothing is.
func (u *upgrade) look(ctx context.Context, name string, pid int) string {
	now, err := u.healths(ctx, readPatience)
	if err != nil {
		return err.Error()
	}
	return settled(name, pid, u.before, now, time.Now())
}

func (u *upgrade) healths(ctx context.Context, within time.Duration) (healths, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return topic.Health.Read(ctx, u.Bus)
}

// commands moves the links of the command line, if the whole crew was moved: the command itself, the one beside the
// daemons, which their units call, and the one that kubelet.service runs. What isn't there, or isn't a link to the
// command line, is left out.
func (u *upgrade) commands() error {
	if len(u.Daemons) > 0 || u.DryRun || u.Command == "" {
		return nil
	}
	for _, path := range []string{
		u.Command, filepath.Join(u.BinDir, commandName), filepath.Join(filepath.Dir(u.Command), "kubelet"),
	} {
		old, err := os.Readlink(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			continue // this crew has no command there, or one that nobody moves
		}
		if err != nil {
			return fmt.Errorf("move the link of the command: %w", err)
		}
		if filepath.Base(old) != commandName {
			continue
		}
		if err := u.command(path, old); err != nil {
			return err
		}
	}
	return nil
}

// command moves one of them, which points to old.
func (u *upgrade) command(path, old string) (err error) {
	fresh := filepath.Join(u.dir, commandName)
	if !filepath.IsAbs(old) {
		if fresh, err = filepath.Rel(filepath.Dir(path), fresh); err != nil {
			return fmt.Errorf("move the link %s: %w", path, err)
		}
	}
	if old == fresh {
		return nil
	}
	if err := point(path, fresh); err != nil {
		return err
	}
	u.done(move{link: link{name: commandName, target: old}, to: fresh}, Moved, "%s is the command of %s", path, u.version)
	return nil
}
