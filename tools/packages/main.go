// Command packages builds kubelot's packages, for Debian and for Red Hat: reproducibly, so that the same source gives
// the same bytes. tools/packages.sh runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// options are the command line.
type options struct {
	root    string // of the source
	out     string
	version string
	arches  []string
	formats []string
	only    []string // names of packages; none means all
	release bool
	// time is in all files: that of the newest commit.
	time time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(o.out), os.MkdirAll(o.out, 0o755)); err != nil {
		return fmt.Errorf("make %s: %w", o.out, err)
	}
	work, err := os.MkdirTemp("", "kubelot-packages-")
	if err != nil {
		return fmt.Errorf("make a directory for what is built: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, arch := range o.arches {
		if err := o.architecture(ctx, filepath.Join(work, arch), arch); err != nil {
			return err
		}
	}
	return sums(o.out)
}

// architecture builds everything for one architecture.
func (o *options) architecture(ctx context.Context, work, arch string) error {
	stage := &stage{options: o, dir: work, arch: arch}
	all, err := stage.packages(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		for _, format := range o.formats {
			if err := stage.write(p, format); err != nil {
				return fmt.Errorf("package %s, %s, %s: %w", p.name, format, arch, err)
			}
		}
	}
	if !o.release {
		return nil
	}
	if err := stage.archive(ctx); err != nil {
		return err
	}
	return stage.billOfMaterials()
}

func parse(args []string) (*options, error) {
	var o options
	var arches, formats, only string
	var seconds int64
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "directory of kubelot's source")
	flags.StringVar(&o.out, "out", "", "directory of the packages; what it has is removed")
	flags.StringVar(&o.version, "version", "", "version, such as v0.2.0 or v0.2.0-5-g1a2b3c4 (tools/version.sh)")
	flags.Int64Var(&seconds, "time", 0, "time of all files, in seconds since 1970")
	flags.StringVar(&arches, "arch", "amd64,arm64", "architectures")
	flags.StringVar(&formats, "format", "deb,rpm", "kinds of packages")
	flags.StringVar(&only, "only", "", "names of the only packages to build, such as kubelot-lease")
	flags.BoolVar(&o.release, "release", false, "also make the archives for kubelot install, and bills of materials")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.out == "" || o.version == "" || seconds <= 0 || flags.NArg() > 0 {
		return nil, errors.New("--out, --version and --time are needed, and nothing else: see tools/packages.sh")
	}
	o.time = time.Unix(seconds, 0).UTC()
	o.arches, o.formats, o.only = words(arches), words(formats), words(only)
	var err error
	if o.root, err = filepath.Abs(o.root); err != nil {
		return nil, fmt.Errorf("find the source: %w", err)
	}
	_, err = packageVersion(o.version)
	return &o, err
}

// words are the parts of a list with commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
