package crew

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The budget on the tail of types, all over the product.
const (
	maxFields  = 20
	maxMethods = 25
)

// size is how large a type is. An embedded type counts as one field.
type size struct{ fields, methods int }

// largeTypes are the types that are larger than the budget, with their ceilings, which only ever sink, and the reason.
var largeTypes = map[string]size{
	// They are as large as what they stand for: a message, a file of the kernel, an API, the flags.
	"bus/topic.Container":  {24, 0},
	"cri/cgroup.Memory":    {28, 1},
	"cri.Client":           {7, 45},
	"cri/critest.Runtime":  {22, 60},
	"kube.Client":          {10, 40},
	"daemon/config.Config": {23, 2},
	// One tree reads both versions of the cgroup files (docs/adr/0022). A type for each version would need what they
	// share, the files and the driver, as a third type.
	"cri/cgroup.Tree": {6, 30},
	// Its methods are the handlers of the routes. They share no state but the pods, the runtime and the rules.
	"services/api/internal/server.Service": {11, 42},
	// Its methods are jobs, each in a file of its own. A job takes from the loop what it needs and gives its end to it.
	"services/gc.Service": {20, 50},
	// It has a setter for each topic, and decides. The setters know which pods a change concerns.
	"services/status.state": {7, 30},
	// A picture of all topics, and one answer about a pod: pure, with a method for each topic or question.
	"cli/internal/live.Model": {15, 34},
	"cli/internal/why.view":   {7, 31},
	// A field for each key.
	"cli/internal/top.keys": {21, 3},
	// They are pure states, and most of their methods are questions.
	"services/resource/internal/cpus.State":   {6, 29},
	"services/resource/internal/devices.Book": {4, 27},
	// It has a method for each kind of news of its pod.
	"services/podsync/internal/worker.Worker": {14, 28},
	// The pods, their volumes and the objects that these read are one graph. A change of any of them concerns the others.
	"services/volume.Service": {22, 43},
	// What is known of a volume is the input of one decision, see decide.go.
	"services/volume.volume": {22, 6},
}

func TestArchTypesAreSmall(t *testing.T) {
	all := typeSizes(t, "..")
	for name, is := range all {
		most := size{maxFields, maxMethods}
		if own, large := largeTypes[name]; large {
			most = own
		}
		if is.fields > most.fields || is.methods > most.methods {
			t.Errorf("type %s has %d fields and %d methods, the limit is %d and %d: split off a part with an owner of its own",
				name, is.fields, is.methods, most.fields, most.methods)
		}
	}
	for name, most := range largeTypes {
		if is := all[name]; is.fields <= maxFields && is.methods <= maxMethods {
			t.Errorf("type %s has %d fields and %d methods: it needs no ceiling of %d and %d any more", name, is.fields,
				is.methods, most.fields, most.methods)
		}
	}
}

// typeSizes are the struct types of the product's Go files below dir, without tests, by their package's directory and
// name.
func typeSizes(t *testing.T, dir string) map[string]size {
	t.Helper()
	sizes := map[string]size{}
	for path := range goFiles(t, dir) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, filepath.Join(dir, "test")+"/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(filepath.Dir(path), dir+"/") + "."
		for _, decl := range file.Decls {
			countType(sizes, pkg, decl)
		}
	}
	return sizes
}

// countType adds what a declaration says of types.
func countType(sizes map[string]size, pkg string, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if name := receiverType(d); name != "" {
			s := sizes[pkg+name]
			s.methods++
			sizes[pkg+name] = s
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if fields, ok := named.Type.(*ast.StructType); ok {
				s := sizes[pkg+named.Name.Name]
				s.fields = fields.Fields.NumFields()
				sizes[pkg+named.Name.Name] = s
			}
		}
	}
}

// receiverType is the name of the type whose method the function is; empty if it is none.
func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
