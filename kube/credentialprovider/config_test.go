package credentialprovider

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// one is a configuration of one provider, to which fields are added.
const one = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.ecr.example"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

const tokens = `  tokenAttributes:
    serviceAccountTokenAudience: ecr.example
    cacheType: Token
    requireServiceAccount: true
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadConfig(t *testing.T) {
	file := write(t, t.TempDir(), "config", one+tokens+"  args: [a]\n  env: [{name: A, value: b}]\n")
	got, hash, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	p := got[0]
	if len(got) != 1 || p.Name != "ecr" || p.DefaultCacheDuration.Hours() != 12 || p.Args[0] != "a" ||
		p.Env[0] != (variable{"A", "b"}) || !*p.TokenAttributes.RequireAccount || p.TokenAttributes.CacheType != "Token" {
		t.Errorf("got %+v", got)
	}
	if !strings.HasPrefix(hash, "sha256:") || len(hash) != len("sha256:")+64 {
		t.Errorf("hash %q", hash)
	}
	if err := validate(got); err != nil {
		t.Error(err)
	}
}

// A directory's files are one configuration, in the order of their names.
func TestReadDirectory(t *testing.T) {
	dir := t.TempDir()
	named := func(name, version string) string {
		return strings.ReplaceAll(strings.Replace(one, "name: ecr", "name: "+name, 1), "config.k8s.io/v1",
			"config.k8s.io/"+version)
	}
	write(t, dir, "20.yml", named("b", "v1beta1"))
	write(t, dir, "10.yaml", "# first\n---\n"+named("c", "v1"))
	write(t, dir, "30.json", `{"apiVersion":"kubelet.config.k8s.io/v1alpha1","kind":"CredentialProviderConfig","providers":[
		{"name":"a","matchImages":["x"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1alpha1"}]}`)
	write(t, dir, "05.txt", "not read")
	if err := os.Mkdir(filepath.Join(dir, "00.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, first, err := readConfig(dir)
	if err != nil || validate(got) != nil {
		t.Fatal(err, validate(got))
	}
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if strings.Join(names, "") != "cba" {
		t.Errorf("providers %v", names)
	}
	write(t, dir, "40.yaml", named("c", "v1"))
	got, second, err := readConfig(dir)
	if err != nil || first == second {
		t.Error("the hash hasn't changed", err)
	}
	if err := validate(got); err == nil || !strings.Contains(err.Error(), "40.yaml: providers[0].name: "+
		`"c" is the name of `+dir+"/10.yaml: providers[0] already") {
		t.Errorf("a name that is there twice: %v", err)
	}
}

func TestBadFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"", `has apiVersion "" and kind ""`},
		"no YAML":          {"{", "neither valid YAML nor JSON"},
		"unknown field":    {one + "  image: x\n", `unknown field "providers[0].image"`},
		"field twice":      {one + "  name: x\n", "already set in map"},
		"wrong case":       {strings.Replace(one, "matchImages", "matchimages", 1), "unknown field"},
		"wrong type":       {one + "  args: 1\n", "args"},
		"duration":         {strings.Replace(one, "12h", "12", 1), ""},
		"other kind":       {strings.Replace(one, "CredentialProviderConfig", "KubeletConfiguration", 1), "want one of"},
		"other version":    {strings.Replace(one, "k8s.io/v1\nkind", "k8s.io/v2\nkind", 1), "want one of"},
		"two documents":    {one + "---\n" + one, "several YAML documents"},
		"no providers":     {"apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n", "names no provider"},
		"tokens in a beta": {strings.Replace(one, "k8s.io/v1\nkind", "k8s.io/v1beta1\nkind", 1) + tokens, "tokenAttributes"},
	} {
		file := write(t, t.TempDir(), "config.yaml", c.text)
		_, _, err := readConfig(file)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	dir := t.TempDir()
	for path, want := range map[string]string{dir: "has no *.json", dir + "/absent": "no such file"} {
		if _, _, err := readConfig(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	replaced := func(old, with string) string { return strings.Replace(one+tokens, old, with, 1) }
	for name, c := range map[string]struct{ text, want string }{
		"good":           {one + tokens, ""},
		"without tokens": {one, ""},
		"beta protocol":  {strings.Replace(one, "kubelet.k8s.io/v1\n", "kubelet.k8s.io/v1beta1\n", 1), ""},
		"no name":        {replaced("name: ecr", "name: ''"), `name: "" isn't the name of a program`},
		"slash":          {replaced("name: ecr", "name: a/b"), "providers[0].name"},
		"space":          {replaced("name: ecr", "name: a b"), "providers[0].name"},
		"dot":            {replaced("name: ecr", "name: ."), "providers[0].name"},
		"dots":           {replaced("name: ecr", "name: .."), "providers[0].name"},
		"no images":      {replaced(`["*.ecr.example"]`, "[]"), "providers[0].matchImages"},
		"bad image":      {replaced(`["*.ecr.example"]`, `["%zz"]`), `matchImages: "%zz" isn't a pattern`},
		"no duration": {
			replaced("  defaultCacheDuration: 12h\n", ""),
			"providers[0].defaultCacheDuration: must be set",
		},
		"negative duration": {replaced("12h", "-1s"), "providers[0].defaultCacheDuration: -1s is negative"},
		"no protocol": {
			replaced("  apiVersion: credentialprovider.kubelet.k8s.io/v1\n", ""),
			"providers[0].apiVersion",
		},
		"wrong protocol": {replaced("kubelet.k8s.io/v1", "kubelet.k8s.io/v3"), "providers[0].apiVersion"},
		"tokens by a beta": {
			replaced("kubelet.k8s.io/v1\n", "kubelet.k8s.io/v1beta1\n"),
			"providers[0].tokenAttributes: tokens",
		},
		"no audience":    {replaced("Audience: ecr.example", "Audience: ''"), "serviceAccountTokenAudience: must be set"},
		"no cache type":  {replaced("    cacheType: Token\n", ""), "tokenAttributes.cacheType"},
		"cache type":     {replaced("cacheType: Token", "cacheType: Pod"), "tokenAttributes.cacheType"},
		"no requirement": {replaced("    requireServiceAccount: true\n", ""), "tokenAttributes.requireServiceAccount"},
		"annotations": {one + tokens + "    requiredServiceAccountAnnotationKeys: [a.example/B]\n" +
			"    optionalServiceAccountAnnotationKeys: [a.example/c]\n", ""},
		"required of nobody": {replaced("requireServiceAccount: true", "requireServiceAccount: false\n"+
			"    requiredServiceAccountAnnotationKeys: [a]"), "needs requireServiceAccount: true"},
		"optional of nobody": {replaced("requireServiceAccount: true", "requireServiceAccount: false\n"+
			"    optionalServiceAccountAnnotationKeys: [a]"), ""},
		"bad annotation": {
			one + tokens + "    requiredServiceAccountAnnotationKeys: ['a b']\n",
			`"a b" isn't the name of an`,
		},
		"annotation twice": {one + tokens + "    optionalServiceAccountAnnotationKeys: [a, a]\n", `"a" is there twice`},
		"annotation of both": {one + tokens + "    requiredServiceAccountAnnotationKeys: [a]\n" +
			"    optionalServiceAccountAnnotationKeys: [a]\n", "both required and optional"},
	} {
		configs, _, err := readConfig(write(t, t.TempDir(), "config.yaml", c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		switch err := validate(configs); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	config := write(t, t.TempDir(), "config.yaml", one)
	for want, o := range map[string]Options{
		"correct --image-credential-provider-bin-dir":           {Config: config, BinDir: dir + "/absent", Log: log},
		"correct what --image-credential-provider-config names": {Config: config + "x", BinDir: dir, Log: log},
		"no program " + dir + "/ecr that can be executed":       {Config: config, BinDir: dir, Log: log},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	write(t, dir, "ecr", "#!/bin/sh\n")
	if p, err := Open(Options{Config: config, BinDir: dir, Log: log}); err != nil || p.Hash() == "" {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Join(dir, "ecr"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Config: config, BinDir: dir, Log: log}); err == nil {
		t.Error("a program that can't be executed is no error")
	}
}
