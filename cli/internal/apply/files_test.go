package apply

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	if all, err := Manifests(dir); err != nil || all != nil {
		t.Fatalf("without the directory: %v, %v", all, err)
	}
	first, second := content(doc("default", "web", "")), content(doc("default", "web", "spec: {}\n"))
	for _, data := range [][]byte{first, second} {
		if err := Write(dir, fileOf("default", "web"), data); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		".hidden.yaml": "x", "etcd.yaml": string(doc("kube-system", "etcd", "").Data),
		"two.yaml": string(doc("a", "one", "").Data) + "---\n" + string(doc("a", "two", "").Data),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	all, err := Manifests(dir)
	var got []string
	for _, m := range all {
		got = append(got, m.File+" "+m.Namespace+"/"+m.Name)
		if m.Own != strings.HasPrefix(m.File, "kubelot.") {
			t.Errorf("%s: own %v", m.File, m.Own)
		}
	}
	want := []string{"etcd.yaml kube-system/etcd", "kubelot.default.web.yaml default/web", "two.yaml a/one"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("manifests %q, %v; want %q", got, err, want)
	}
	path := filepath.Join(dir, fileOf("default", "web"))
	info, err := os.Stat(path)
	text, readErr := os.ReadFile(path)
	if err != nil || readErr != nil || info.Mode().Perm() != 0o600 || string(text) != string(second) {
		t.Errorf("%v, %v, mode %v:\n%s", err, readErr, info.Mode(), text)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".kubelot*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := Remove(dir, fileOf("default", "web")); err != nil {
		t.Error(err)
	}
	if err := Remove(dir, fileOf("default", "web")); err == nil {
		t.Error("a file that isn't there was removed")
	}
	if err := Write(path+"/x", "y", nil); err == nil {
		t.Log("the path is free now, so a directory may be made there")
	}
	if err := Write(filepath.Join(dir, "etcd.yaml"), "y", nil); err == nil {
		t.Error("a manifest was written into a file")
	}
}
