package crew

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/daemon/config"
)

// standIns are what daemons read of fields that daemon/config has resolved for them.
var standIns = map[string]string{
	"kubeReserved": "config.Reserved", "systemReserved": "config.Reserved", "reservedSystemCPUs": "config.Reserved",
	"registerWithTaints": "Config.RegisterTaints", "registerNode": "Config.RegisterNode",
	"providerID": "Config.ProviderID", "featureGates": "config.Enabled",
	"containerRuntimeEndpoint": "Config.RuntimeEndpoint", "imageServiceEndpoint": "Config.ImageEndpoint",
	"podLogsDir":                   "Config.PodLogsDir",
	"mergeDefaultEvictionSettings": "Kubelet.EvictionHard",
	"serializeImagePulls":          "Kubelet.MaxParallelImagePulls",
	"tracing":                      "config.Tracing",
	"qosReserved":                  "config.QOSReserved",
}

// Users are warned by this table, so it must say what the daemons do with each field.
func TestFieldTableIsTrue(t *testing.T) {
	read := fieldsRead(t)
	goNames := map[string]string{}
	typ := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		goNames[name] = "Kubelet." + typ.Field(i).Name
	}
	for _, f := range config.Fields {
		used := read[goNames[f.Path]] || read[standIns[f.Path]]
		if does := f.Level == config.Supported || f.Level == config.Partly; does != used {
			t.Errorf("%s is %s in the table of daemon/config, and that a daemon reads it is %v", f.Path, f.Level, used)
		}
	}
}

// fieldsRead are the fields that the product's code outside of daemon/config selects from a configuration, as
// Kubelet.<field> and Config.<field>, and the functions of package config that it calls. By the project's habit a
// variable of a KubeletConfiguration is called k.
func fieldsRead(t *testing.T) map[string]bool {
	t.Helper()
	read := map[string]bool{}
	visit := func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == filepath.Join("..", "daemon", "config"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if owner := ownerOf(s.X); owner != "" {
					read[owner+"."+s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	}
	for _, root := range []string{"services", "daemon", "cli", "kube", "cri", "crew"} {
		if err := filepath.WalkDir(filepath.Join("..", root), visit); err != nil {
			t.Fatal(err)
		}
	}
	return read
}

func ownerOf(x ast.Expr) string {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	switch name {
	case "k", "kubelet", "Kubelet":
		return "Kubelet"
	case "c", "cfg", "Config":
		return "Config"
	case "config":
		return "config"
	}
	return ""
}
