package crew

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forTests are exported names that only tests use, with the reason why the product has them.
var forTests = map[string]string{
	"daemon.NewEnv":      "tests of the services run a daemon with it",
	"kube.StrategyCache": "the API has this value, and the code has no case of its own for it",
	"services/podsync/internal/source/manifest.Unvalidated": "a differential test compares with Kubernetes' decoder",
}

// foreign are methods that only libraries call, by an interface of theirs.
var foreign = []string{
	"Debugf", "Noticef", "Tracef", "Warnf", // nats-server's log
	"WithAttrs", "WithGroup", // log/slog
	"Resync", "IsWatchListSemanticsUnSupported", // client-go
	"Describe",                            // Prometheus
	"GetFlagz",                            // component-base
	"Init",                                // bubbletea
	"Less",                                // container/heap
	"ReadOnReady",                         // gRPC
	"UnmarshalJSON",                       // encoding/json
	"UploadTraces",                        // OpenTelemetry
	"ListPods", "GetAllocatableResources", // services of Kubernetes' gRPC APIs
}

// kits are the packages that exist for tests.
var kits = []string{
	"bussuite", "bustest", "critest", "cgrouptest", "kubetest", "logindtest", "plantest",
	"podsynctest", "scenariotest", "mounttest", "plugintest", "dratest", "kit", "livetest",
}

// ofTests reports whether a file is there for tests only.
func ofTests(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") ||
		slices.Contains(kits, path.Base(path.Dir(file)))
}

// Exported names that nobody uses must go. Linters don't find them, because they see one module at a time. A name of a
// package is looked up with its package. A method or a field is looked up by its name alone, so a dead one that shares
// its name with another isn't found.
func TestArchExportedNamesAreUsed(t *testing.T) {
	found := exported{packages: map[string]string{}, declared: map[string]string{}, used: map[string]bool{}}
	files := map[string]*ast.File{}
	for _, file := range filesOf(t, ".go") {
		if !ofTests(file) {
			files[file] = parsed(t, file)
			found.packages[path.Dir(file)] = files[file].Name.Name
		}
	}
	for file, content := range files {
		found.declarationsOf(file, content)
		found.usesOf(file, content)
	}
	for name, file := range found.declared {
		_, member, _ := strings.Cut(name, ".")
		if !found.used[name] && forTests[name] == "" && !slices.Contains(foreign, member) {
			t.Errorf("%s: nothing but tests uses %s: remove it, or move it to the tests", file, name)
		}
	}
	for name := range forTests {
		if _, declared := found.declared[name]; !declared || found.used[name] {
			t.Errorf("%s needs no exception: it is used, or it isn't there", name)
		}
	}
}

// exported are the exported names of the product. A name of a package is directory.Name, a method or field .Name.
type exported struct {
	packages map[string]string // the name of the package in each directory
	declared map[string]string // the file that declares a name
	used     map[string]bool
}

// declarationsOf adds what a file declares. Fields with a tag are read by libraries.
func (n exported) declarationsOf(file string, content *ast.File) {
	add := func(prefix string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				n.declared[prefix+"."+id.Name] = file
			}
		}
	}
	dir := path.Dir(file)
	for _, declaration := range content.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				add("", d.Name)
			} else {
				add(dir, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					add(dir, s.Names...)
				case *ast.TypeSpec:
					add(dir, s.Name)
					if structure, ok := s.Type.(*ast.StructType); ok {
						for _, field := range structure.Fields.List {
							if field.Tag == nil {
								add("", field.Names...)
							}
						}
					}
				}
			}
		}
	}
}

// usesOf adds what a file uses.
func (n exported) usesOf(file string, content *ast.File) {
	n.usesAbroad(content)
	declares := declaring(content)
	ast.Inspect(content, func(node ast.Node) bool {
		if x, ok := node.(*ast.Ident); ok && !declares[x] {
			n.used[path.Dir(file)+"."+x.Name] = true
			n.used["."+x.Name] = true
		}
		return true
	})
}

// usesAbroad adds what a file uses of the packages that it imports.
func (n exported) usesAbroad(content *ast.File) {
	imports := map[string]string{}
	for _, i := range content.Imports {
		dir, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "kubelot.dev/")
		switch {
		case !ours:
		case i.Name != nil:
			imports[i.Name.Name] = dir
		default:
			imports[n.packages[dir]] = dir
		}
	}
	ast.Inspect(content, func(node ast.Node) bool {
		if x, ok := node.(*ast.SelectorExpr); ok {
			if pkg, ok := x.X.(*ast.Ident); ok && imports[pkg.Name] != "" {
				n.used[imports[pkg.Name]+"."+x.Sel.Name] = true
			}
		}
		return true
	})
}

// declaring are the identifiers of a file that declare a name of the package, a method or a field.
func declaring(content *ast.File) map[*ast.Ident]bool {
	found := map[*ast.Ident]bool{}
	ast.Inspect(content, func(node ast.Node) bool {
		switch d := node.(type) {
		case *ast.FuncDecl:
			found[d.Name] = true
		case *ast.TypeSpec:
			found[d.Name] = true
			if structure, ok := d.Type.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						found[name] = true
					}
				}
			}
		case *ast.ValueSpec:
			for _, name := range d.Names {
				found[name] = true
			}
		}
		return true
	})
	return found
}

// parsed is a Go file of the repository, by its path from the root.
func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	content, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
