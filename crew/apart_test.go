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

// byInterface are methods of interfaces of the standard library and of other modules, beside those of foreign.
var byInterface = []string{
	"Error", "String", "Write",
	"Accept", "SetDeadline", "SetWriteDeadline", // net
	"Hijack", "Open", "RoundTrip", "ServeHTTP", "WriteHeader", // net/http
	"Len", "Pop", "Push", "Swap", // container/heap
	"Handle",                              // log/slog
	"ListWithContext", "WatchWithContext", // client-go
	"Collect",   // Prometheus
	"View",      // bubbletea
	"WatchPods", // a service of Kubernetes' gRPC APIs
}

// A method that only its own package calls must not be exported, unless an interface has it. A call is looked up by the
// method's name, in the packages that can have a value of its type: those that import its package, themselves or
// through others.
func TestArchExportedMethodsAreUsedElsewhere(t *testing.T) {
	known := packages{
		imports: map[string][]string{}, tests: map[string][]string{},
		selects: map[string]map[string]bool{}, reached: map[string]map[string]bool{},
	}
	files, asked := map[string]*ast.File{}, slices.Clone(foreign)
	for _, file := range filesOf(t, ".go") {
		files[file] = parsed(t, file)
		known.add(file, files[file])
		asked = append(asked, methodsOfInterfaces(files[file])...)
	}
	excused := map[string]bool{}
	for file, content := range files {
		if ofTests(file) || content.Name.Name == "main" {
			continue
		}
		for _, declaration := range content.Decls {
			d, ok := declaration.(*ast.FuncDecl)
			if !ok || d.Recv == nil || !d.Name.IsExported() || slices.Contains(asked, d.Name.Name) ||
				known.selectElsewhere(path.Dir(file), d.Name.Name) {
				continue
			}
			if excused[d.Name.Name] = true; !slices.Contains(byInterface, d.Name.Name) {
				t.Errorf("%s: no other package calls the method %s: begin its name with a small letter", file, d.Name.Name)
			}
		}
	}
	for _, name := range byInterface {
		if !excused[name] {
			t.Errorf("the method %s needs no exception: other packages call it, or it isn't there", name)
		}
	}
}

// packages are those of the repository by their directory. A package of tests beside another has _test after it.
type packages struct {
	imports map[string][]string        // of ours, without those of tests
	tests   map[string][]string        // of ours, by tests
	selects map[string]map[string]bool // the names after a dot
	reached map[string]map[string]bool // what reach has found
}

func (p packages) add(file string, content *ast.File) {
	pkg, imports := path.Dir(file), p.imports
	if strings.HasSuffix(file, "_test.go") {
		imports = p.tests
	}
	if strings.HasSuffix(content.Name.Name, "_test") {
		pkg += "_test"
	}
	for _, i := range content.Imports {
		if dir, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "kubelot.dev/"); ours {
			imports[pkg] = append(imports[pkg], dir)
		}
	}
	if p.selects[pkg] == nil {
		p.selects[pkg] = map[string]bool{}
	}
	ast.Inspect(content, func(node ast.Node) bool {
		if x, ok := node.(*ast.SelectorExpr); ok {
			p.selects[pkg][x.Sel.Name] = true
		}
		return true
	})
}

// selectElsewhere reports whether a package that reaches another one selects a name that may be of that.
func (p packages) selectElsewhere(other, name string) bool {
	for pkg, names := range p.selects {
		if pkg != other && names[name] && p.reach(pkg)[other] {
			return true
		}
	}
	return false
}

// reach has what a package and its tests import, themselves or through others.
func (p packages) reach(pkg string) map[string]bool {
	if p.reached[pkg] != nil {
		return p.reached[pkg]
	}
	found := map[string]bool{}
	for todo := slices.Concat(p.imports[pkg], p.tests[pkg]); len(todo) > 0; todo = todo[1:] {
		if dir := todo[0]; !found[dir] {
			found[dir] = true
			todo = append(todo, p.imports[dir]...)
		}
	}
	p.reached[pkg] = found
	return found
}

func methodsOfInterfaces(content *ast.File) (names []string) {
	ast.Inspect(content, func(node ast.Node) bool {
		if i, ok := node.(*ast.InterfaceType); ok {
			for _, method := range i.Methods.List {
				for _, name := range method.Names {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	return names
}
