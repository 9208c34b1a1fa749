package crew

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// roomArrows are the rooms of podsync, the directories below services/podsync/internal, and which others each may
// import. docs/adr/0018 has the reasons.
var roomArrows = map[string][]string{
	"source":    nil,
	"admission": nil,
	"worker":    {"admission", "image", "runtime", "node"},
	"image":     nil,
	"runtime":   {"node"},
	"node":      nil,
}

const podsyncRooms = "kubelot.dev/services/podsync/internal/"

func TestArchRooms(t *testing.T) {
	used := map[string]map[string]bool{}
	for _, pkg := range podsyncPackages(t) {
		from := roomOf(pkg.path)
		if _, known := roomArrows[from]; !known {
			t.Errorf("%s is in no room: move it into one of podsync's, or add a room with its arrows to roomArrows", pkg.path)
			continue
		}
		if used[from] == nil {
			used[from] = map[string]bool{}
		}
		for _, imported := range pkg.imports {
			to := roomOf(imported)
			if to == "" || to == from {
				continue
			}
			used[from][to] = true
			if !slices.Contains(roomArrows[from], to) {
				t.Errorf("%s imports %s: the room %s may only import %v; let it declare a small interface, or take a function",
					pkg.path, imported, from, roomArrows[from])
			}
		}
	}
	for from, list := range roomArrows {
		if used[from] == nil {
			t.Errorf("the room %s is empty: remove it from roomArrows", from)
		}
		for _, to := range list {
			if !used[from][to] {
				t.Errorf("no package of the room %s imports %s any more: remove the arrow from roomArrows", from, to)
			}
		}
	}
}

// goPackage is a package with what it and its tests import.
type goPackage struct {
	path    string
	imports []string
}

// podsyncPackages are the packages of all rooms.
func podsyncPackages(t *testing.T) []goPackage {
	t.Helper()
	const format = `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", format, podsyncRooms+"...").Output()
	if err != nil {
		t.Fatalf("list the packages of podsync: %v", err)
	}
	var list []goPackage
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		list = append(list, goPackage{path: fields[0], imports: fields[1:]})
	}
	return list
}

// roomOf is the room of a package; empty for one that is outside of all rooms.
func roomOf(pkg string) string {
	below, found := strings.CutPrefix(pkg, podsyncRooms)
	if !found {
		return ""
	}
	room, _, _ := strings.Cut(below, "/")
	return room
}
