package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
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
	// Command is the link of the command line itself, which is moved with the whole crew; one that isn't there is left
	// out.
	Command string
	Bus     *bus.Conn
	Out     io.Writer
}

// move is one daemon's way.
type move struct {
	link
	executable string // the new one, with all links followed
	to         string // the link's new target
	process    process
}

// Run moves the daemons. An error says how far it came.
func Run(ctx context.Context, o Options) error {
	u := &upgrade{Options: o}
	moves, err := u.prepare(ctx)
	if err != nil {
		return err
	}
	if u.before, err = u.healths(ctx); err != nil {
		return fmt.Errorf("read how the daemons are, before anything is moved: %w", err)
	}
	for i, m := range moves {
		if m.process.pid != 0 && m.process.executable == m.executable && m.target == m.to {
			u.say("kubelot-%s runs %s already", m.name, u.version)
			continue
		}
		if o.DryRun {
			u.say("kubelot-%s would be moved from %s to %s", m.name, m.target, m.to)
			continue
		}
		if err := u.one(ctx, m); err != nil {
			return fmt.Errorf("%w; %d of %d daemons run %s", err, i, len(moves), u.version)
		}
	}
	return u.command()
}

// upgrade is one run.
type upgrade struct {
	Options
	dir     string // of the new executables
	version string
	before  healths
}

func (u *upgrade) say(format string, args ...any) {
	fmt.Fprintf(u.Out, format+"\n", args...)
}

// prepare finds all that is to be moved, and runs each new executable once.
func (u *upgrade) prepare(ctx context.Context) ([]move, error) {
	var err error
	if u.dir, err = versionDir(u.BinDir, u.To); err != nil {
		return nil, err
	}
	compact := processOf(filepath.Join(u.BinDir, prefix+compactName))
	if compact.pid != 0 && len(u.Daemons) > 0 {
		return nil, errors.New("all daemons are one process (kubelot-compact): they can only be moved together")
	}
	found, err := links(u.BinDir, u.Daemons)
	if err != nil {
		return nil, err
	}
	moves := map[string]move{}
	running := "" // the version of some daemon that runs
	for _, l := range found {
		m, err := u.moveOf(ctx, l)
		if err != nil {
			return nil, err
		}
		if m.process.pid != 0 {
			if running, err = versionOf(ctx, l.path); err != nil {
				running = "" // what runs needn't be sound
			}
		}
		moves[l.name] = m
	}
	var sorted []move
	for _, name := range order(slices.Collect(maps.Keys(moves)), older(u.version, running)) {
		sorted = append(sorted, moves[name])
	}
	runs := func(m move) bool { return m.process.pid != 0 }
	// Links of what doesn't run come last: they are of no use where one that runs goes back.
	slices.SortStableFunc(sorted, func(a, b move) int {
		switch {
		case runs(a) == runs(b):
			return 0
		case runs(a):
			return -1
		}
		return 1
	})
	if !slices.ContainsFunc(sorted, runs) {
		return nil, fmt.Errorf("no daemon runs that was started by a link in %s: name the directory of the links with "+
			"--bin-dir; a crew that doesn't run needs no more than new links (make install)", u.BinDir)
	}
	return sorted, nil
}

// moveOf looks at one daemon and its new executable.
func (u *upgrade) moveOf(ctx context.Context, l link) (move, error) {
	path := filepath.Join(u.dir, prefix+l.name)
	version, err := versionOf(ctx, path)
	if err != nil {
		return move{}, fmt.Errorf("nothing was moved: %w", err)
	}
	if u.version != "" && version != u.version {
		return move{}, fmt.Errorf("nothing was moved: %s is of %s, and others in %s are of %s", path, version, u.dir,
			u.version)
	}
	u.version = version
	executable, err := filepath.EvalSymlinks(path)
	if err != nil {
		return move{}, fmt.Errorf("nothing was moved: %w", err)
	}
	return move{link: l, executable: executable, to: targetFor(u.BinDir, path), process: processOf(l.path)}, nil
}

// one moves a daemon, and moves it back if it isn't well in time.
func (u *upgrade) one(ctx context.Context, m move) error {
	began := time.Now()
	if err := point(m.path, m.to); err != nil {
		return err
	}
	if m.process.pid == 0 {
		u.say("kubelot-%s doesn't run; its link is moved", m.name)
		return nil
	}
	err := m.process.restart(ctx)
	if err == nil {
		err = u.await(ctx, m, m.executable)
	}
	if err == nil {
		u.say("kubelot-%s runs %s, %s", m.name, u.version, time.Since(began).Round(100*time.Millisecond))
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped while kubelot-%s was moved, which is left at %s: %w", m.name, u.version,
			context.Cause(ctx))
	}
	return u.back(ctx, m, fmt.Errorf("kubelot-%s of %s is not well: %w", m.name, u.version, err))
}

// back moves a daemon back to where it was.
func (u *upgrade) back(ctx context.Context, m move, cause error) error {
	u.say("%v; it goes back", cause)
	if err := point(m.path, m.target); err != nil {
		return errors.Join(cause, err)
	}
	if p := processOf(m.path); p.pid != 0 {
		if err := p.restart(ctx); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := u.await(ctx, m, m.process.executable); err != nil {
		return fmt.Errorf("%w; it was moved back to %s and is not well there either: %w: see its log", cause, m.target, err)
	}
	return fmt.Errorf("%w; it runs %s again", cause, m.target)
}

// await waits until the daemon runs the executable in another process than before and the crew is as well as it was,
// and has been for the time to settle.
func (u *upgrade) await(ctx context.Context, m move, executable string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, u.Patience, fmt.Errorf("waited %s", u.Patience))
	defer cancel()
	var since time.Time
	steady := 0
	for {
		p := processOf(m.path)
		problem := fmt.Sprintf("no process of kubelot-%s runs %s", m.name, executable)
		if p.pid != 0 && p.pid != m.process.pid && p.executable == executable {
			problem = u.look(ctx, m.name, p.pid)
		}
		switch {
		case problem != "" || p.pid != steady:
			since, steady = time.Now(), p.pid
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
	now, err := u.healths(ctx)
	if err != nil {
		return err.Error()
	}
	return settled(name, pid, u.before, now, time.Now())
}

func (u *upgrade) healths(ctx context.Context) (healths, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	return topic.Health.Read(ctx, u.Bus)
}

// command moves the link of the command line, if the whole crew was moved and there is one.
func (u *upgrade) command() error {
	if len(u.Daemons) > 0 || u.DryRun || u.Command == "" {
		return nil
	}
	old, err := os.Readlink(u.Command)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil // this crew has no command there, or one that nobody moves
	}
	if err != nil {
		return fmt.Errorf("move the link of the command: %w", err)
	}
	fresh := filepath.Join(u.dir, "kubelot")
	if !filepath.IsAbs(old) {
		if fresh, err = filepath.Rel(filepath.Dir(u.Command), fresh); err != nil {
			return fmt.Errorf("move the link %s: %w", u.Command, err)
		}
	}
	if old == fresh {
		return nil
	}
	if err := point(u.Command, fresh); err != nil {
		return err
	}
	u.say("%s is the command of %s", u.Command, u.version)
	return nil
}
