package crew

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Each daemon names its loop, so that its health and systemd's watchdog depend on that: a loop that hangs would go
// unseen.
func TestArchEveryLoopFeedsTheWatchdog(t *testing.T) {
	for _, name := range daemonNames() {
		dir := "../services/" + name
		if name == "bus" {
			dir = "../bus/embed"
		}
		if !namesItsLoop(t, dir) {
			t.Errorf("%s never calls Pulse.Of: its beats say that it is well while its loop hangs", dir)
		}
	}
	if namesItsLoop(t, "../bus/topic") {
		t.Error("the test finds loops where there are none")
	}
}

// namesItsLoop reports whether a Go file below dir that is no test calls Of of a daemon.Pulse, by whatever name.
func namesItsLoop(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	for path := range goFiles(t, dir) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Of" {
				return true
			}
			of, ok := method.X.(*ast.SelectorExpr)
			found = found || ok && strings.EqualFold(of.Sel.Name, "pulse")
			return true
		})
	}
	return found
}
