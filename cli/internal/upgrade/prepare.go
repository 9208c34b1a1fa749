package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/running"
	"kubelot.dev/cli/internal/up"
	"kubelot.dev/deploy"
)

// prepare finds all that is to be moved, and runs each new executable once.
func (u *upgrade) prepare(ctx context.Context) ([]move, error) {
	err := u.packaged(ctx)
	if err != nil {
		return nil, err
	}
	if u.dir, err = versionDir(u.BinDir, u.To); err != nil {
		return nil, err
	}
	compact := running.Of(filepath.Join(u.BinDir, prefix+compactName)).PID != 0
	if compact && len(u.Daemons) > 0 {
		return nil, errors.New("all daemons are one process (kubelot-compact): they can only be moved together")
	}
	found, err := u.candidates(compact)
	if err != nil {
		return nil, err
	}
	crew, err := u.crew(ctx, compact)
	if err != nil {
		return nil, err
	}
	if u.version, err = u.versionTo(ctx, found); err != nil {
		return nil, fmt.Errorf("nothing was moved: %w", err)
	}
	back := crew.newer(ctx, u.version)
	var moves []move
	for _, l := range found {
		m, err := u.moveOf(ctx, l, crew, back)
		if err != nil {
			return nil, fmt.Errorf("nothing was moved: %w", err)
		}
		moves = append(moves, m)
	}
	slices.SortFunc(moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(place(a.name, a.kind, back), place(b.name, b.kind, back)), cmp.Compare(a.name, b.name))
	})
	return moves, nil
}

// candidates are the links of the daemons that are to be moved. If no daemons are named, those that are new in the
// version are among them, although they may have no link yet.
func (u *upgrade) candidates(compact bool) ([]link, error) {
	found, err := links(u.BinDir, u.Daemons)
	if err != nil || compact || len(u.Daemons) > 0 {
		return found, err
	}
	names, err := deploy.Daemons()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		known := slices.ContainsFunc(found, func(l link) bool { return l.name == name })
		if !known && exists(filepath.Join(u.dir, prefix+name)) {
			found = append(found, link{name: name, path: filepath.Join(u.BinDir, prefix+name)})
		}
	}
	return found, nil
}

// processes are those that run now, by the daemons' names.
type processes map[string]running.Process

// crew are all processes that were started by links of the directory, also those of daemons that aren't moved.
func (u *upgrade) crew(ctx context.Context, compact bool) (processes, error) {
	all, err := links(u.BinDir, nil)
	if err != nil {
		return nil, err
	}
	crew := processes{}
	for _, l := range all {
		p, err := u.awake(ctx, l)
		if err != nil {
			return nil, err
		}
		if p.PID != 0 && (l.name == compactName) == compact {
			crew[l.name] = p
			u.systemd = u.systemd || p.Unit != ""
		}
	}
	if len(crew) == 0 {
		return nil, fmt.Errorf("no daemon runs that was started by a link in %s: name the directory of the links with "+
			"--bin-dir; a crew that doesn't run needs no more than new links (kubelot install)", u.BinDir)
	}
	return crew, nil
}

// wakingPatience is how long a daemon that sleeps may take to wake.
const wakingPatience = 5 * time.Second

// awake finds the daemon's process. One that sleeps is woken: asleep it runs another executable.
func (u *upgrade) awake(ctx context.Context, l link) (running.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, wakingPatience)
	defer cancel()
	for {
		p := running.Of(l.path)
		if !p.Asleep() {
			return p, nil
		}
		if ctx.Err() != nil {
			return p, fmt.Errorf("process %d of kubelot-%s sleeps and doesn't wake: end it, and its supervisor starts it again",
				p.PID, l.name)
		}
		if err := p.Wake(); err != nil {
			return p, err
		}
		pause.For(ctx, lookEvery)
	}
}

// newer reports whether a daemon runs that is of a later version. One that doesn't say its version is none: what runs
// needn't be sound.
func (c processes) newer(ctx context.Context, version string) bool {
	asked := map[string]bool{}
	for name, p := range c {
		if asked[p.Executable] {
			continue
		}
		asked[p.Executable] = true
		if runs, err := p.Version(ctx, prefix+name); err == nil && older(version, runs) {
			return true
		}
	}
	return false
}

// without reports whether the daemon is new: versions other than that in the directory run, and none of them has it.
func (c processes) without(name, dir string) bool {
	others := false
	for _, p := range c {
		at := filepath.Dir(p.Executable)
		if at == dir {
			continue
		}
		others = true
		if exists(filepath.Join(at, prefix+name)) {
			return false
		}
	}
	return others
}

// versionTo is the version that all executables of these daemons say, or the bus if it has none of them.
func (u *upgrade) versionTo(ctx context.Context, found []link) (string, error) {
	var version, first string
	for _, l := range found {
		path := filepath.Join(u.dir, prefix+l.name)
		if !exists(path) {
			continue
		}
		says, err := running.VersionOf(ctx, path)
		switch {
		case err != nil:
			return "", err
		case version == "":
			version, first = says, path
		case version != says:
			return "", fmt.Errorf("%s is of %s, and %s is of %s", path, says, first, version)
		}
	}
	if version == "" {
		return running.VersionOf(ctx, filepath.Join(u.dir, prefix+busName))
	}
	return version, nil
}

// moveOf looks at one daemon and its new executable.
func (u *upgrade) moveOf(ctx context.Context, l link, crew processes, back bool) (move, error) {
	path := filepath.Join(u.dir, prefix+l.name)
	m := move{link: l, process: crew[l.name], to: targetFor(u.BinDir, path)}
	executable, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && back && up.Optional(l.name):
		m.kind = gone
		return m, nil
	case errors.Is(err, os.ErrNotExist):
		return move{}, fmt.Errorf("%s has no kubelot-%s: install the whole version first, or name the daemons that are to "+
			"be moved", u.dir, l.name)
	case err != nil:
		return move{}, err
	}
	m.executable = executable
	switch {
	case m.process.PID != 0:
		m.back = wayBack(l, m.process)
	case crew.without(l.name, filepath.Dir(executable)):
		m.kind, err = u.startable(ctx, l.name)
	default:
		m.kind = idle
	}
	return m, err
}

// startable is how a daemon that no version that runs has is treated: it is started, unless an administrator forbids
// it.
func (u *upgrade) startable(ctx context.Context, name string) (kind, error) {
	if !u.systemd {
		return fresh, nil
	}
	state, err := running.LoadState(ctx, running.UnitName(prefix+name))
	switch {
	case err != nil:
		return idle, err
	case state == "loaded":
		return fresh, nil
	case state == "masked":
		return idle, nil
	}
	return idle, fmt.Errorf("kubelot-%s is new in this version, and has no unit here (%s): install the version first "+
		"(kubelot install)", name, state)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
