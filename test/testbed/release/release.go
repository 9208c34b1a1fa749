// Package release builds kubelot's executables as an earlier release had them, for tests of daemons of two versions
// side by side.
//
// Reads: deploy/releases.txt and the repository's history. Writes: .bin/releases/<version>, which later runs use again.
//
// Guarantees: what it builds is the release's own commit, with the version of that release. A checkout without that
// commit (a shallow clone) is the error ErrNotHere, which says what to do.
package release

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotHere says that the checkout hasn't got the release's commit.
var ErrNotHere = errors.New("the checkout lacks the release's commit: fetch the whole history " +
	"(git fetch --unshallow), or put the release's executables into the directory that is named")

// Release is a line of deploy/releases.txt.
type Release struct {
	Version string
	Commit  string
	Date    time.Time
}

var (
	version = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)
	commit  = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// List is the releases of the repository at root, oldest first.
func List(root string) ([]Release, error) {
	path := filepath.Join(root, "deploy", "releases.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list the releases: %w", err)
	}
	return parse(path, text)
}

func parse(path string, text []byte) ([]Release, error) {
	var all []Release
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; scanner.Scan(); number++ {
		line, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 || !version.MatchString(fields[0]) || !commit.MatchString(fields[1]) {
			return nil, fmt.Errorf("%s:%d: want a version (v1.2.3), a full commit and a date (2026-01-31), got %q", path,
				number, line)
		}
		date, err := time.Parse(time.DateOnly, fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: want a date such as 2026-01-31, got %q", path, number, fields[2])
		}
		all = append(all, Release{fields[0], fields[1], date})
	}
	return all, scanner.Err()
}

// Last is the newest release.
func Last(root string) (Release, error) {
	all, err := List(root)
	if err == nil && len(all) == 0 {
		err = errors.New("deploy/releases.txt names no release")
	}
	if err != nil {
		return Release{}, err
	}
	return all[len(all)-1], nil
}

// programs are the executables of a release, with the modules that build them.
var programs = []struct{ name, module string }{
	{"kubelot-all", "crew"},
	{"kubelot-api", "services/api"},
	{"kubelot-compact", "crew"},
}

// Build returns the directory of the release's executables, as tools/build.sh makes it. It builds them where they
// aren't there yet.
func Build(ctx context.Context, root string, r Release) (string, error) {
	parent := filepath.Join(root, ".bin", "releases")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", r.Version, err)
	}
	unlock, err := lock(parent)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", r.Version, err)
	}
	defer unlock()
	dir := filepath.Join(parent, r.Version)
	if _, err := os.Stat(filepath.Join(dir, "kubelot")); err == nil {
		return dir, nil
	}
	if err := build(ctx, root, r, dir); err != nil {
		return "", fmt.Errorf("build %s in %s: %w", r.Version, dir, err)
	}
	return dir, nil
}

// lock keeps two test programs from building the same.
func lock(dir string) (func(), error) {
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

func build(ctx context.Context, root string, r Release, dir string) error {
	if exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", r.Commit+"^{commit}").Run() != nil {
		return ErrNotHere
	}
	source, err := os.MkdirTemp("", "kubelot-"+r.Version)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(source) }() // a temporary directory that is left harms nobody
	archive := filepath.Join(source, "source.tar")
	if err := run(ctx, root, "git", "archive", "--output", archive, r.Commit); err != nil {
		return err
	}
	if err := run(ctx, source, "tar", "xf", archive); err != nil {
		return err
	}
	made := dir + ".new"
	if err := errors.Join(os.RemoveAll(made), os.MkdirAll(made, 0o755)); err != nil {
		return err
	}
	for _, p := range programs {
		if err := run(ctx, filepath.Join(source, p.module), "go", "build", "-trimpath", "-ldflags",
			"-s -w -X kubelot.dev/daemon.version="+r.Version, "-o", filepath.Join(made, p.name), "./cmd/"+p.name); err != nil {
			return err
		}
	}
	if err := links(ctx, made); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// links makes a link for each program of the multi-call executable, which lists them when it isn't told which to be.
func links(ctx context.Context, dir string) error {
	out, _ := exec.CommandContext(ctx, filepath.Join(dir, "kubelot-all")).CombinedOutput()
	_, list, found := strings.Cut(string(out), "name a program: ")
	if !found {
		return fmt.Errorf("kubelot-all lists no programs: %s", out)
	}
	for name := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
		link := "kubelot-" + name
		if name == "kubelot" {
			link = name
		}
		if err := os.Symlink("kubelot-all", filepath.Join(dir, link)); err != nil {
			return err
		}
	}
	return nil
}
