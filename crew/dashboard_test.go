package crew

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ofLibraries are metrics that libraries register for every daemon.
var ofLibraries = regexp.MustCompile("^(process|go)_")

// A panel whose metric was renamed is empty, and nobody notices; so every name in the dashboard must be in the daemons'
// code.
func TestDashboardHasMetricsThatExist(t *testing.T) {
	data, err := os.ReadFile("../deploy/grafana/kubelot.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	named, used := literals(t), 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			metrics := metricsOf(target.Expr)
			if len(metrics) == 0 {
				t.Errorf("panel %q: no metric found in %s", panel.Title, target.Expr)
			}
			for _, name := range metrics {
				used++
				if !exists(named, name) {
					t.Errorf("panel %q: no daemon has the metric %s", panel.Title, name)
				}
			}
		}
	}
	if used < 30 {
		t.Errorf("%d metrics found in the dashboard, which has more", used)
	}
}

// selected is a metric's name before its labels.
var selected = regexp.MustCompile(`([a-z_][a-z0-9_]*)\{`)

func metricsOf(expr string) []string {
	var names []string
	for _, m := range selected.FindAllStringSubmatch(expr, -1) {
		names = append(names, m[1])
	}
	return names
}

func exists(named map[string]bool, name string) bool {
	if named[name] || ofLibraries.MatchString(name) {
		return true
	}
	base, ok := strings.CutSuffix(name, "_bucket")
	if ok && named[base] {
		return true
	}
	// Names that are put together of two constants, such as "node" and "_memory_working_set_bytes".
	for i := range name {
		if name[i] == '_' && named[name[:i]] && named[name[i:]] {
			return true
		}
	}
	pressure := regexp.MustCompile("^(container_pressure_)(cpu|io|memory)(_.*)$").FindStringSubmatch(name)
	return pressure != nil && named[pressure[1]] && named[pressure[2]] && named[pressure[3]]
}

// literals are all strings in the product's code.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, root := range []string{"services", "daemon", "bus", "cri", "kube"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil {
						found[s] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
