// Package install puts kubelot on a machine without a package manager, and takes it away again.
//
// # Owns
//
// <prefix>/lib/kubelot: a directory for each version, bin with a link for each daemon, and installed.txt, the list of
// all files and links elsewhere.
//
// # Guarantees
//
//   - A version is replaced as a whole, and there is no moment without a link. A daemon that runs goes on, and its link
//     stays where it is: package upgrade moves it.
//   - An installation or a removal that broke off can be repeated, and an installation that broke off can be removed.
//   - Files that the administrator may change are never overwritten.
//   - All users can read what is installed, whatever the umask is, or was at an earlier installation. A directory above
//     it that they can't enter isn't kubelot's to change: Install names it.
//   - Nothing is started or restarted, and no pod is touched.
//   - What a package manager or somebody else has put there is not replaced: that is an error before anything changes.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kubelot.dev/cli/internal/running"
	"kubelot.dev/cli/internal/takeover"
	"kubelot.dev/daemon/config"
	"kubelot.dev/deploy"
)

// Options say what is installed, or removed.
type Options struct {
	// From is the directory of the executables.
	From    string
	Version string
	// Prefix is a directory such as /usr; units find the executables below it.
	Prefix string
	// Dest goes before each path, for an image of another machine. Empty means this machine.
	Dest string
	// Daemons are the only ones whose links and units are replaced; none means all that there are.
	Daemons []string
	// Compact installs the unit of all daemons in one process, in place of one for each; nil means as before.
	Compact *bool
	// Kubelet installs kubelet.service and the program kubelet, for kubeadm; nil means as before.
	Kubelet *bool
	// Purge removes also what the administrator may have changed, and the state in /run/kubelot.
	Purge bool
	Out   io.Writer
}

// umask is that of Install, for the whole process.
const umask = 0o022

// The units that tell what an earlier install has brought.
const compactUnit, kubeletUnit = "kubelot-compact.service", "kubelet.service"

func unitBelow(prefix, name string) string { return filepath.Join(prefix, "lib/systemd/system", name) }

// daemonPrefix begins the names of the daemons' executables.
const daemonPrefix = "kubelot-"

func (o Options) lib() string            { return filepath.Join(o.Prefix, "lib/kubelot") }
func (o Options) at(path string) string  { return filepath.Join(o.Dest, path) }
func (o Options) binary(n string) string { return filepath.Join(o.lib(), "bin", n) }
func (o Options) programs() string       { return filepath.Join(o.Prefix, "bin") }

// Installed is what there is after Install.
type Installed struct {
	// Kept are the daemons that run, which keep their version so that a restart by chance doesn't change it: kubelot
	// upgrade is to move their links.
	Kept []string
	// Kubelet is true where kubeadm starts the daemons.
	Kubelet bool
}

// Install installs the executables of a directory as a version, and makes it the one that units run.
func Install(ctx context.Context, o Options) (Installed, error) {
	// Most daemons aren't root. They must get to the executables whatever the administrator's umask is.
	defer syscall.Umask(syscall.Umask(umask))
	before, err := o.readManifest()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Installed{}, err
	}
	asBefore(&o, before)
	files, err := o.files()
	if err != nil {
		return Installed{}, err
	}
	links := o.links(files)
	if err := o.foreign(files, before); err != nil {
		return Installed{}, err
	}
	if err := o.check(links, before); err != nil {
		return Installed{}, err
	}
	kept, err := o.replace(before, links, files)
	if err != nil {
		return Installed{}, err
	}
	if err := o.directories(); err != nil {
		return Installed{}, fmt.Errorf("make the directories of volumes and plugins: %w", err)
	}
	return Installed{Kept: kept, Kubelet: *o.Kubelet}, o.machine(ctx, activate)
}

// asBefore decides what wasn't asked for by what an earlier install has brought: else an install of a newer version
// would take the unit away by which kubeadm starts the daemons, or change their layout.
func asBefore(o *Options, before []string) {
	for unit, part := range map[string]**bool{compactUnit: &o.Compact, kubeletUnit: &o.Kubelet} {
		if *part == nil {
			*part = new(len(o.Daemons) == 0 && slices.Contains(before, unitBelow(o.Prefix, unit)))
		}
	}
}

// replace puts the version, the links and the files there, and removes what an earlier install had beyond them. It
// returns the daemons whose links stay.
func (o Options) replace(before []string, links []link, files []deploy.File) (kept []string, err error) {
	if err := o.copyVersion(); err != nil {
		return nil, err
	}
	if err := o.announce(before, links, files); err != nil {
		return nil, err
	}
	kept, owned, err := o.makeLinks(links)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := o.put(file); err != nil {
			return nil, err
		}
		if !file.Config {
			owned = append(owned, file.Path)
		}
	}
	if err := o.settle(before, owned); err != nil {
		return nil, err
	}
	return kept, o.open(slices.Concat(before, owned))
}

// makeLinks makes or moves all links but those of daemons that run. They are owned all the same.
func (o Options) makeLinks(links []link) (kept, owned []string, err error) {
	for _, l := range links {
		owned = append(owned, l.path)
		name, daemon := strings.CutPrefix(filepath.Base(l.path), daemonPrefix)
		target, err := os.Readlink(o.at(l.path))
		if err == nil && daemon && target != l.to && running.Of(o.at(l.path)).PID != 0 {
			kept = append(kept, name)
			continue
		}
		if err := o.link(l.path, l.to); err != nil {
			return nil, nil, err
		}
	}
	return kept, owned, nil
}

// files are those of the parts that were asked for.
func (o Options) files() ([]deploy.File, error) {
	daemons, err := deploy.Daemons()
	if err != nil {
		return nil, err
	}
	for _, name := range o.Daemons {
		if !slices.Contains(daemons, name) {
			return nil, fmt.Errorf("there is no daemon %q, only: %s", name, strings.Join(daemons, ", "))
		}
	}
	parts := append([]string{deploy.Common}, daemons...)
	switch {
	case len(o.Daemons) > 0:
		parts = o.Daemons
	case *o.Compact:
		parts = []string{deploy.Common, deploy.Compact}
	}
	if *o.Kubelet {
		parts = append(parts, deploy.Kubelet)
	}
	files, err := deploy.Files(o.Prefix)
	return slices.DeleteFunc(files, func(f deploy.File) bool { return !slices.Contains(parts, f.Part) }), err
}

// link is a link to an executable of the version.
type link struct{ path, to string }

// links are those of the daemons that have a file among these, and of the command line.
func (o Options) links(files []deploy.File) []link {
	var list []link
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file.Path), ".service")
		if file.Link == "" && name == daemonPrefix+file.Part {
			list = append(list, link{o.binary(name), filepath.Join("..", o.Version, name)})
		}
	}
	to := filepath.Join("../lib/kubelot", o.Version, "kubelot")
	if len(o.Daemons) == 0 {
		list = append(list, link{filepath.Join(o.programs(), "kubelot"), to},
			link{o.binary("kubelot"), filepath.Join("..", o.Version, "kubelot")})
	}
	if *o.Kubelet {
		list = append(list, link{filepath.Join(o.programs(), "kubelet"), to})
	}
	return list
}

// check finds what would go wrong halfway.
func (o Options) check(links []link, before []string) error {
	if len(o.Daemons) > 0 && before == nil {
		return fmt.Errorf(
			"nothing is installed below %s yet: install all of kubelot first, without names of daemons",
			o.at(o.lib()),
		)
	}
	if len(o.Daemons) > 0 && slices.Contains(before, unitBelow(o.Prefix, compactUnit)) {
		return errors.New("the daemons are installed as one process: install all of kubelot, without names of daemons")
	}
	for _, l := range links {
		source := filepath.Join(o.From, filepath.Base(l.to))
		if _, err := os.Stat(source); err != nil {
			return fmt.Errorf("%s has no executable %s: run the kubelot that is in the daemons' directory (make build)",
				o.From, filepath.Base(l.to))
		}
		info, err := os.Lstat(o.at(l.path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at what is installed: %w", err)
		}
		if info.Mode()&fs.ModeSymlink == 0 || !slices.Contains(before, l.path) {
			return o.another(l.path)
		}
	}
	return nil
}

// foreign finds a file that somebody else has put where one of kubelot's goes, such as a kubelet's own unit.
func (o Options) foreign(files []deploy.File, before []string) error {
	for _, file := range files {
		_, err := os.Lstat(o.at(file.Path))
		switch {
		case file.Config || errors.Is(err, fs.ErrNotExist) || slices.Contains(before, file.Path):
		case err != nil:
			return fmt.Errorf("look at what is installed: %w", err)
		default:
			return o.another(file.Path)
		}
	}
	return nil
}

// another says that a path is another's.
func (o Options) another(path string) error {
	return fmt.Errorf(
		"%s is there and wasn't put there by kubelot install: remove the package or the program that it belongs to",
		o.at(path),
	)
}

// settle writes down what is installed, and removes what an earlier install had and this one hasn't.
func (o Options) settle(before, owned []string) error {
	if len(o.Daemons) > 0 {
		owned = append(owned, before...)
	}
	slices.Sort(owned)
	owned = slices.Compact(owned)
	if err := o.writeManifest(owned); err != nil {
		return err
	}
	for _, path := range before {
		if !slices.Contains(owned, path) {
			if err := o.remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Uninstall removes what Install has put there. Pods go on running.
func Uninstall(ctx context.Context, o Options) error {
	owned, err := o.readManifest()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s isn't there: nothing was installed by kubelot install; packages are removed by apt or dnf",
			o.at(o.manifest()))
	}
	if err != nil {
		return err
	}
	if err := o.machine(ctx, stops(o.Prefix, owned)); err != nil {
		return err
	}
	for _, path := range owned {
		if err := o.remove(path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(o.at(o.lib())); err != nil {
		return fmt.Errorf("remove the versions: %w", err)
	}
	if o.Purge {
		if err := o.purge(); err != nil {
			return err
		}
	}
	return o.machine(ctx, reload)
}

// stops are the commands that stop what was installed. A kubelet.service that wasn't is the kubelet's own: after a
// handback it runs.
func stops(prefix string, owned []string) []string {
	if slices.Contains(owned, unitBelow(prefix, kubeletUnit)) {
		return deactivate
	}
	others := func(command string) bool { return strings.HasSuffix(command, " kubelet.service") }
	return slices.DeleteFunc(slices.Clone(deactivate), others)
}

// purge removes what Uninstall leaves: files that may have been changed, and the state of the daemons.
func (o Options) purge() error {
	files, err := deploy.Files(o.Prefix)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Config {
			if err := o.remove(file.Path); err != nil {
				return err
			}
		}
	}
	if err := takeover.DropFlagsBelow(o.Dest); err != nil {
		return err
	}
	if err := os.RemoveAll(o.at(config.RunDir)); err != nil {
		return fmt.Errorf("remove the state of the daemons: %w", err)
	}
	return nil
}
