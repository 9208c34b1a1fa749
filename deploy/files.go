// Package deploy says which files kubelot has on a node beside its executables, and where: units, drop-ins, presets.
// Packages and `kubelot install` take them from here.
package deploy

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed systemd
var systemd embed.FS

// The parts of kubelot that are installed apart, beside a part for each daemon, which has the daemon's name.
const (
	Common  = "common"  // the target, the slice, directories, flags: what every layout needs
	Compact = "compact" // the unit that runs all daemons in one process
	Kubelet = "kubelet" // the unit by whose name kubeadm starts the crew
)

// File is a file or a link.
type File struct {
	// Part is a daemon's name or one of the constants above.
	Part string
	// Path is absolute.
	Path string
	// Link is what a link points to; Content is empty then.
	Link    string
	Content []byte
	// Config marks a file that the administrator may change. It is never overwritten.
	Config bool
}

const (
	// builtFor is the prefix in the units.
	builtFor = "/usr"
	dropIn   = "10-one-agent.conf"
	disown   = "10-kubelot-disown.conf"
)

// Files are all files of all parts below a prefix such as /usr, in the order of their paths.
func Files(prefix string) ([]File, error) {
	units := prefix + "/lib/systemd/system/"
	wants := units + "kubelot.target.wants/"
	list := []File{
		{Part: Common, Path: units + "kubelot-.service.d/" + dropIn, Content: read("one-agent.conf")},
		{Part: Common, Path: units + "kubelet.service.d/" + disown, Content: read("disown.conf")},
		{Part: Common, Path: prefix + "/lib/systemd/system-preset/85-kubelot.preset", Content: read("kubelot.preset")},
		{Part: Common, Path: prefix + "/lib/tmpfiles.d/kubelot.conf", Content: read("kubelot.tmpfiles")},
		{Part: Common, Path: "/etc/default/kubelot", Content: read("kubelot.default"), Config: true},
		{Part: Kubelet, Path: units + "kubelet.service", Content: read("kubelet/kubelet.service")},
		{Part: Kubelet, Path: units + "kubelot-.service.d/20-kubelet.conf", Content: read("kubelet/handed-over.conf")},
		{Part: Kubelet, Path: units + "kubelot.target.d/20-kubelet.conf", Content: read("kubelet/crew-stops.conf")},
		{
			Part:    Kubelet,
			Path:    prefix + "/lib/systemd/system-preset/80-kubelet.preset",
			Content: read("kubelet/kubelet.preset"),
		},
		// A link to nothing in /etc hides the file of its name: this crew is the kubelet.
		{Part: Kubelet, Path: "/etc/systemd/system/kubelot-.service.d/" + dropIn, Link: "/dev/null"},
		{Part: Kubelet, Path: "/etc/systemd/system/kubelet.service.d/" + disown, Link: "/dev/null"},
	}
	if sysusers, err := systemd.ReadFile("systemd/kubelot.sysusers"); err == nil {
		list = append(list, File{Part: Common, Path: prefix + "/lib/sysusers.d/kubelot.conf", Content: sysusers})
	}
	entries, err := systemd.ReadDir("systemd")
	if err != nil {
		return nil, fmt.Errorf("list the units: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch path.Ext(name) {
		case ".target", ".slice":
			list = append(list, File{Part: Common, Path: units + name, Content: read(name)})
		case ".service":
			part := partOf(name)
			list = append(list, File{Part: part, Path: units + name, Content: read(name)},
				File{Part: part, Path: wants + name, Link: "../" + name})
		}
	}
	for i := range list {
		for _, below := range []string{"/lib/kubelot/", "/bin/kubelet"} {
			list[i].Content = bytes.ReplaceAll(list[i].Content, []byte(builtFor+below), []byte(prefix+below))
		}
	}
	slices.SortFunc(list, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}

// partOf is the part that a unit belongs to: the daemon that it runs, or what is common.
func partOf(unit string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(unit, "kubelot-"), ".service")
	if bytes.Contains(read(unit), []byte("\nExecStart=/usr/lib/kubelot/bin/kubelot-"+name+" ")) {
		return name
	}
	return Common
}

// Daemons are the names of the daemons that have a unit of their own.
func Daemons() ([]string, error) {
	units, err := fs.Glob(systemd, "systemd/kubelot-*.service")
	if err != nil {
		return nil, fmt.Errorf("list the units: %w", err)
	}
	var names []string
	for _, unit := range units {
		if name := partOf(path.Base(unit)); name != Compact && name != Common {
			names = append(names, name)
		}
	}
	return names, nil
}

// read is an embedded file. The names are constants of this package or come from its list, and a test reads them all.
func read(name string) []byte {
	content, err := systemd.ReadFile("systemd/" + name)
	if err != nil {
		panic(err)
	}
	return content
}
