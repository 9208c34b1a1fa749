package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubelot.dev/test/vm/machine"
)

// Installer is how kubelot comes into a machine, goes to another version, and goes.
type Installer interface {
	// Fill puts what the others need into a directory, which the machine has as /payload/kubelot.
	Fill(dir string) error
	Install(ctx context.Context, m *machine.Machine) error
	// Upgrade moves one daemon to the next version, and returns that version as the daemon says it.
	Upgrade(ctx context.Context, m *machine.Machine, daemon string) (version string, err error)
	// Remove stops kubelot and takes away what Install and Upgrade brought. What kubelot wrote stays.
	Remove(ctx context.Context, m *machine.Machine) error
}

// From chooses by what is in a directory of this host: deb packages, or executables as tools/build.sh makes them. The
// directory of the next version has the same of one daemon at least; without one nothing can be upgraded.
func From(dir, next string) (Installer, error) {
	debs, err := packages(dir)
	if err != nil {
		return nil, err
	}
	if len(debs) > 0 {
		later, err := packages(next)
		return Packages{Files: debs, Next: later}, err
	}
	if _, err := os.Stat(filepath.Join(dir, "kubelot")); err != nil {
		return nil, fmt.Errorf("%q has neither deb packages nor executables (tools/build.sh): %w", dir, err)
	}
	return Executables{Dir: dir, Next: next}, nil
}

func packages(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, fmt.Errorf("find packages: %w", err)
	}
	// That one has kubeadm start the crew, and nobody else.
	return slices.DeleteFunc(debs, func(path string) bool {
		return strings.HasPrefix(filepath.Base(path), "kubelot-kubelet_")
	}), nil
}

// What Fill makes, as the machine has it.
const (
	kubelotDir = "kubelot"
	current    = machine.Payload + "/" + kubelotDir + "/current"
	later      = machine.Payload + "/" + kubelotDir + "/next"
)

// Packages installs deb packages with apt.
type Packages struct {
	Files []string
	Next  []string // of the next version
}

// Fill copies the packages.
func (p Packages) Fill(dir string) error {
	for into, files := range map[string][]string{"current": p.Files, "next": p.Next} {
		for _, file := range files {
			if err := copyFile(file, filepath.Join(dir, into, filepath.Base(file))); err != nil {
				return fmt.Errorf("take packages into the machine: %w", err)
			}
		}
	}
	return nil
}

const apt = "DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "

// Install has apt install all of them: what they depend on must be among them, or in the image.
func (p Packages) Install(ctx context.Context, m *machine.Machine) error {
	_, err := m.Run(ctx, apt+"install "+current+"/*.deb")
	return err
}

// Upgrade has apt install the daemon's package of the next version.
func (p Packages) Upgrade(ctx context.Context, m *machine.Machine, daemon string) (string, error) {
	out, err := m.Run(ctx, fmt.Sprintf("%sinstall %s/kubelot-%s_*.deb >/dev/null && "+
		"/usr/lib/kubelot/bin/kubelot-%[3]s --version", apt, later, daemon))
	return lastWord(out), err
}

// Remove has apt purge them.
func (p Packages) Remove(ctx context.Context, m *machine.Machine) error {
	_, err := m.Run(ctx, apt+"purge 'kubelot*'")
	return err
}

// Executables are installed by kubelot install, which lies among them.
type Executables struct{ Dir, Next string }

// Fill copies the executables and their links.
func (e Executables) Fill(dir string) error {
	for into, from := range map[string]string{"current": e.Dir, "next": e.Next} {
		if from == "" {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(from, "kubelot*"))
		if err != nil {
			return fmt.Errorf("take executables into the machine: %w", err)
		}
		for _, path := range paths {
			// One unit per daemon is what is tested.
			if filepath.Base(path) == "kubelot-compact" {
				continue
			}
			if err := copyOrLink(path, filepath.Join(dir, into, filepath.Base(path))); err != nil {
				return fmt.Errorf("take executables into the machine: %w", err)
			}
		}
	}
	return nil
}

// Install runs kubelot install.
func (e Executables) Install(ctx context.Context, m *machine.Machine) error {
	_, err := m.Run(ctx, current+"/kubelot install")
	return err
}

// Upgrade installs the next version beside this one, and has kubelot upgrade move the daemon.
func (e Executables) Upgrade(ctx context.Context, m *machine.Machine, daemon string) (string, error) {
	out, err := m.Run(ctx, fmt.Sprintf("%s/kubelot version", later))
	if err != nil {
		return "", err
	}
	version := lastWord(out)
	// An emulated machine may take longer than the minute that is the default.
	_, err = m.Run(ctx, fmt.Sprintf("%s/kubelot install %s && kubelot upgrade --patience=10m %s %[2]s", later, daemon,
		version))
	return version, err
}

// Remove runs kubelot uninstall.
func (e Executables) Remove(ctx context.Context, m *machine.Machine) error {
	_, err := m.Run(ctx, "kubelot uninstall")
	return err
}

func lastWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// copyOrLink copies a file, and makes a link to its neighbour again.
func copyOrLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil || filepath.Base(target) != target {
		return copyFile(from, to)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, to)
}
