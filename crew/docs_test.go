package crew

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documents that lead a reader through the code.
var guides = []string{
	"docs/architecture.md", "docs/extending.md", "docs/debugging.md", "docs/replay.md", "CONTRIBUTING.md",
	"SECURITY.md",
}

// A document that names a file which was moved leads nowhere, and nobody notices.
func TestArchDocsNameWhatExists(t *testing.T) {
	for _, doc := range guides {
		names := references(read(t, doc))
		if len(names) == 0 {
			t.Errorf("%s names no file", doc)
		}
		for _, name := range names {
			if problem := missing("..", name); problem != "" {
				t.Errorf("%s: `%s`: %s", doc, name, problem)
			}
		}
	}
}

// A step of the tour that names no file tells a story and doesn't lead to the code.
func TestArchStepsOfTheTourNameFiles(t *testing.T) {
	steps := numbered(read(t, "docs/architecture.md"))
	if len(steps) < 20 {
		t.Fatalf("only %d numbered steps found", len(steps))
	}
	for _, step := range steps {
		if len(references(step)) == 0 {
			t.Errorf("docs/architecture.md: a step names no file: %.120q", step)
		}
	}
}

// numbered are the items of a document's numbered lists.
func numbered(text string) []string {
	var items []string
	open := false
	for line := range strings.Lines(codeBlock.ReplaceAllString(text, "")) {
		switch {
		case numberedItem.MatchString(line):
			items, open = append(items, line), true
		case !strings.HasPrefix(line, "   "):
			open = false
		case open:
			items[len(items)-1] += line
		}
	}
	return items
}

var numberedItem = regexp.MustCompile(`^\d+\. `)

func TestNumbered(t *testing.T) {
	text := "1. Look at\n   `a/b.go`.\n2. Nothing.\n\n   More.\n\nProse, `c/d.go`.\n10. Last.\n"
	want := []string{"1. Look at\n   `a/b.go`.\n", "2. Nothing.\n", "10. Last.\n"}
	if got := numbered(text); !slices.Equal(got, want) {
		t.Errorf("items are %q, want %q", got, want)
	}
}

// Wrong references are found.
func TestDocsReferences(t *testing.T) {
	text := "Start at `crew/crew.go` or `docs/*.md`, see `crew/crew.go:Daemons` and " +
		"`daemon/metrics.go:metricsServer.stop`.\nRun `go -C crew test ./...` or `make check`; not `/run/kubelot`, " +
		"`--v=4` and `pod.update`.\n```\n`in/a/block`\n```\n"
	want := []string{"crew/crew.go", "docs/*.md", "crew/crew.go:Daemons", "daemon/metrics.go:metricsServer.stop"}
	if got := references(text); !slices.Equal(got, want) {
		t.Errorf("references are %q, want %q", got, want)
	}
	for _, name := range want {
		if problem := missing("..", name); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for _, name := range []string{
		"crew/absent.go", "docs/*.absent", "crew/crew.go:Absent", "crew:Daemons", "crew/crew.go/",
		"daemon/metrics.go:Service.stop",
	} {
		if missing("..", name) == "" {
			t.Errorf("%s is taken for a reference to something that exists", name)
		}
	}
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	// A reference is a path from the root of the repository, which may have a pattern of package path/filepath, and
	// may name a declaration of the file: dir/file.go:Func, dir/file.go:Type.Method.
	reference = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?(:\w+(\.\w+)?)?$`)
	fileName  = regexp.MustCompile(`\.(go|md|sh|txt|yml|yaml|json|service|target|mod)(:[\w.]+)?$`)
)

// references are the code spans of a document that name files of this repository.
func references(text string) []string {
	var names []string
	for _, m := range codeSpan.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		if span := m[1]; reference.MatchString(span) && (strings.Contains(span, "/") || fileName.MatchString(span)) {
			names = append(names, span)
		}
	}
	return names
}

// missing says what a reference names that doesn't exist below root; empty if all of it does.
func missing(root, name string) string {
	path, declaration, _ := strings.Cut(name, ":")
	found, err := filepath.Glob(filepath.Join(root, path))
	switch {
	case err != nil:
		return err.Error()
	case len(found) == 0:
		return "no such file"
	}
	if info, err := os.Stat(found[0]); err != nil || strings.HasSuffix(path, "/") && !info.IsDir() {
		return "no such directory"
	}
	if declaration == "" {
		return ""
	}
	file, err := parser.ParseFile(token.NewFileSet(), found[0], nil, parser.SkipObjectResolution)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(declarations(file), declaration) {
		return "the file doesn't declare " + declaration
	}
	return ""
}

// declarations are the names that a file declares: functions, types, variables, constants, and methods with and without
// their type.
func declarations(file *ast.File) []string {
	var names []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
			if d.Recv != nil {
				names = append(names, receiver(d.Recv.List[0].Type)+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

var link = regexp.MustCompile(`\[([^\]\n]*)\]\(([^)\s#]+)(#[^)\s]*)?\)`)

func TestArchLinksOfDocsWork(t *testing.T) {
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(read(t, doc), ""), -1) {
			if strings.Contains(m[2], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(doc), m[2])); err != nil {
				t.Errorf("%s: the link %s leads nowhere", doc, m[0])
			}
		}
	}
}

// documents are the Markdown files of the repository, by their paths from its root.
func documents(t *testing.T) []string {
	t.Helper()
	all := filesOf(t, ".md")
	if len(all) < 20 {
		t.Fatalf("only %d documents found", len(all))
	}
	return all
}

// filesOf are the repository's files whose names end so, by their paths from its root. Hidden directories are left out.
func filesOf(t *testing.T, suffix string) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".":
			return fs.SkipDir
		case strings.HasSuffix(path, suffix):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
