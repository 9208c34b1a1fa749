package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cli/internal/running"
)

// freshPatience is how long it takes kubelot up to notice the executable of a daemon that is new. One of an earlier
// release doesn't notice it.
const freshPatience = 10 * time.Second

// intention says what would be done.
func (m move) intention(version string) string {
	name := prefix + m.name
	switch m.kind {
	case fresh:
		return fmt.Sprintf("%s is new in %s and would be started", name, version)
	case gone:
		return fmt.Sprintf("%s doesn't have %s, which would be stopped", version, name)
	case idle:
		return fmt.Sprintf("%s doesn't run; its link would be moved from %s to %s", name, m.target, m.to)
	}
	return fmt.Sprintf("%s would be moved from %s to %s", name, m.target, m.to)
}

// one moves a daemon, and moves it back if it isn't well in time.
func (u *upgrade) one(ctx context.Context, m move) error {
	if m.kind == gone {
		return u.end(ctx, m)
	}
	began := time.Now()
	if err := point(m.path, m.to); err != nil {
		return err
	}
	var err error
	switch m.kind {
	case idle:
		u.done(m, Link, "kubelot-%s doesn't run; its link is moved", m.name)
		return nil
	case fresh:
		// What an earlier process said of itself is no measure.
		delete(u.before, m.name)
		var started bool
		started, err = u.start(ctx, m)
		if err == nil && !started {
			u.done(m, Link, "kubelot-%s is new in %s; kubelot up runs it when it is started again", m.name, u.version)
			return nil
		}
	default:
		err = m.process.Restart(ctx)
	}
	if err == nil {
		err = u.await(ctx, m, m.executable)
	}
	if err == nil {
		u.done(m, m.outcome(), "kubelot-%s runs %s, %s", m.name, u.version, time.Since(began).Round(100*time.Millisecond))
		return u.remember(ctx, m)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped while kubelot-%s was moved, which is left at %s: %w", m.name, u.version,
			context.Cause(ctx))
	}
	return u.back(ctx, m, fmt.Errorf("kubelot-%s of %s is not well: %w", m.name, u.version, err))
}

// remember has those that are moved next judged by the health of a daemon that was new, too.
func (u *upgrade) remember(ctx context.Context, m move) error {
	if m.kind != fresh {
		return nil
	}
	now, err := u.healths(ctx, readPatience)
	if h, there := now[m.name]; there {
		u.before[m.name] = h
	}
	return err
}

// start has a daemon started that is new, and reports whether it was. kubelot up starts it by itself.
func (u *upgrade) start(ctx context.Context, m move) (bool, error) {
	if u.systemd {
		return true, running.Systemctl(ctx, "start", "--no-block", running.UnitName(prefix+m.name))
	}
	ctx, cancel := context.WithTimeout(ctx, freshPatience)
	defer cancel()
	for ctx.Err() == nil {
		if running.Of(m.path).PID != 0 {
			return true, nil
		}
		pause.For(ctx, lookEvery)
	}
	return false, nil
}

// end stops a daemon that the other version hasn't got. Its unit starts nothing without the link, and kubelot up
// waits for it.
func (u *upgrade) end(ctx context.Context, m move) error {
	delete(u.before, m.name)
	if err := u.stop(ctx, m); err != nil {
		return err
	}
	u.done(m, Stopped, "%s doesn't have kubelot-%s, which is stopped", u.version, m.name)
	return nil
}

// stop removes a daemon's link and waits until no process of it is left.
func (u *upgrade) stop(ctx context.Context, m move) error {
	if err := remove(m.path); err != nil {
		return err
	}
	if u.systemd {
		return running.Systemctl(ctx, "stop", running.UnitName(prefix+m.name))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, u.Patience, fmt.Errorf("waited %s", u.Patience))
	defer cancel()
	told := 0
	for {
		p := running.Of(m.path)
		if p.PID == 0 {
			return nil
		}
		if p.PID != told {
			if err := p.Terminate(); err != nil {
				return err
			}
			told = p.PID
		}
		pause.For(ctx, lookEvery)
		if ctx.Err() != nil {
			return fmt.Errorf("process %d of kubelot-%s doesn't end (%w)", p.PID, m.name, context.Cause(ctx))
		}
	}
}

// back moves a daemon back to where it was.
func (u *upgrade) back(ctx context.Context, m move, cause error) error {
	switch {
	case m.kind == fresh:
		u.done(m, Back, "%v; it is stopped", cause)
		if err := u.stop(ctx, m); err != nil {
			return errors.Join(cause, err)
		}
		return fmt.Errorf("%w; it is stopped, as it was before", cause)
	case m.back == "" || m.back == m.to:
		return fmt.Errorf("%w; it can't go back: the executable that it had is gone; see its log", cause)
	}
	u.done(m, Back, "%v; it goes back", cause)
	if err := point(m.path, m.back); err != nil {
		return errors.Join(cause, err)
	}
	p := m.process
	if p.Unit == "" {
		p = running.Of(m.path) // kubelot up starts it again if none runs
	}
	if p.PID != 0 {
		if err := p.Restart(ctx); err != nil {
			return errors.Join(cause, err)
		}
	}
	if err := u.await(ctx, m, m.process.Executable); err != nil {
		return fmt.Errorf("%w; it was moved back to %s and is not well there either: %w: see its log", cause, m.back, err)
	}
	return fmt.Errorf("%w; it runs %s again", cause, m.back)
}
