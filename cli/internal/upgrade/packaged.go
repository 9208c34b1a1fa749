package upgrade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// manager is a package manager: how it is asked whose a file is, and how a person has it move a daemon.
type manager struct {
	// ask is the command, to which the file's path is added. Its answer begins with the package's name and a colon.
	ask []string
	// install and back are commands to which files are added; file is that of a package, with its name for %s.
	install, back, file string
}

var managers = []manager{
	{
		ask:     []string{"dpkg-query", "--search"},
		install: "apt install", back: "apt install --allow-downgrades", file: "./%s_*.deb",
	},
	{
		ask:     []string{"rpm", "--query", "--queryformat", "%{NAME}:", "--file"},
		install: "dnf install", back: "dnf downgrade", file: "./%s-*.rpm",
	},
}

// packaged is an error if packages own the executables of the daemons: a file that is moved behind the back of the
// package manager is back at its next upgrade, and dependencies between the packages hold no longer.
func (u *upgrade) packaged(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(u.BinDir, prefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		for _, m := range managers {
			owner := m.owner(ctx, path)
			if owner == "" {
				continue
			}
			return fmt.Errorf("nothing was moved: packages own the executables (%s is of the package %s), and each package "+
				"restarts its daemon when it is upgraded. In the directory with the packages of %s: %s. After each, look at "+
				"kubelot doctor. To go back: %s with the older packages, those that the others share last", path, owner, u.To,
				strings.Join(u.packageCommands(m, owner), ", then "), m.back)
		}
	}
	return nil
}

// packageCommands have the manager move the daemons: first what all share, since a daemon may ask more of it than there
// is now.
func (u *upgrade) packageCommands(m manager, owner string) []string {
	with := func(packages ...string) string {
		command := m.install
		for _, name := range packages {
			command += " " + fmt.Sprintf(m.file, name)
		}
		return command
	}
	const cli, common, bus = prefix + "cli", prefix + "common", prefix + busName
	if owner == prefix+compactName { // its file is in a directory of its own: it excludes the daemons'
		return []string{with(cli, common, compactName+"/"+owner)}
	}
	all := []string{with(cli, common, bus)}
	for _, name := range u.Daemons {
		if name != busName {
			all = append(all, with(prefix+name))
		}
	}
	if len(u.Daemons) == 0 {
		all = append(all, with(prefix+"podsync")+" and each other daemon's package in the same way")
	}
	return all
}

// owner is the package that a file belongs to; empty if it is none of this manager, or there is no such manager.
func (m manager) owner(ctx context.Context, path string) string {
	command := append(m.ask[1:len(m.ask):len(m.ask)], path)
	answer, err := exec.CommandContext(ctx, m.ask[0], command...).Output()
	if err != nil {
		return "" // not of a package
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(answer)), ":")
	return name
}
