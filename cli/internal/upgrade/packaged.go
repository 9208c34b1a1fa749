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
	// install and back are commands, with the package's name for %s.
	install, back string
}

var managers = []manager{
	{
		ask:     []string{"dpkg-query", "--search"},
		install: "apt install ./%s_*.deb", back: "apt install --allow-downgrades ./%s_OLDER_*.deb",
	},
	{
		ask:     []string{"rpm", "--query", "--queryformat", "%{NAME}:", "--file"},
		install: "dnf install ./%s-*.rpm", back: "dnf downgrade ./%s-OLDER.rpm",
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
			first, rest := prefix+busName, ", then the same with each other daemon's package"
			if filepath.Base(path) == prefix+compactName {
				first, rest = owner, ""
			} else if len(u.Daemons) > 0 {
				first, rest = prefix+u.Daemons[0], ""
			}
			if len(u.Daemons) > 1 {
				rest = ", then " + strings.Join(u.Daemons[1:], ", ") + " in the same way"
			}
			return fmt.Errorf("nothing was moved: packages own the executables (%s is of the package %s), and each package "+
				"restarts its daemon when it is upgraded. In the directory with the packages of %s: "+m.install+"%s. After "+
				"each, look at kubelot doctor; to go back with a daemon: "+m.back, path, owner, u.To, first, rest, first)
		}
	}
	return nil
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
