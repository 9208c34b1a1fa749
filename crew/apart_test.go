package crew

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// pureCores are exported functions that only their own package calls: they decide, without I/O, and the package's doc
// names them.
var pureCores = []string{
	"services/gc/internal/evict.Rank", "services/lease.Conditions",
}

// A function, variable or constant that only its own package uses must not be exported. A test of another package
// counts as a user. New and Run may be exported in any service. A group of variables or constants is exported as a
// whole. Constants of an exported type belong to the type.
func TestArchExportedNamesAreUsedElsewhere(t *testing.T) {
	found := exported{packages: map[string]string{}, used: map[string]bool{}}
	files := map[string]*ast.File{}
	for _, file := range filesOf(t, ".go") {
		files[file] = parsed(t, file)
		if !strings.HasSuffix(file, "_test.go") {
			found.packages[path.Dir(file)] = files[file].Name.Name
		}
	}
	for _, content := range files {
		found.usesAbroad(content)
	}
	for file, content := range files {
		if ofTests(file) || path.Dir(file) == "bus/topic" || content.Name.Name == "main" {
			continue
		}
		for _, group := range groupsOf(content) {
			used := func(id *ast.Ident) bool { return found.used[path.Dir(file)+"."+id.Name] }
			if slices.ContainsFunc(group, used) {
				continue
			}
			for _, id := range group {
				if name := path.Dir(file) + "." + id.Name; id.IsExported() && !slices.Contains(pureCores, name) {
					t.Errorf("%s: no other package uses %s: begin its name with a small letter", file, name)
				}
			}
		}
	}
	for _, name := range pureCores {
		if found.used[name] {
			t.Errorf("%s needs no exception: another package uses it", name)
		}
	}
}

// groupsOf are the names of a file's functions, and those of its variables and constants by their declaration.
func groupsOf(content *ast.File) [][]*ast.Ident {
	var groups [][]*ast.Ident
	for _, declaration := range content.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name != "New" && d.Name.Name != "Run" {
				groups = append(groups, []*ast.Ident{d.Name})
			}
		case *ast.GenDecl:
			var group []*ast.Ident
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok && !ofExportedType(values) {
					group = append(group, values.Names...)
				}
			}
			groups = append(groups, group)
		}
	}
	return groups
}

func ofExportedType(values *ast.ValueSpec) bool {
	name, ok := values.Type.(*ast.Ident)
	return ok && name.IsExported()
}
