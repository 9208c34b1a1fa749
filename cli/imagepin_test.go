package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/cri/critest"
)

// The fake runtime calls itself containerd, and has none of its API: so is one that is too old. test/e2e has the real
// one.
func TestPinsTakeContainerd(t *testing.T) {
	runtime := critest.Start(t)
	runtime.AddImage("registry.example/app:1", 5<<20)
	at := "--container-runtime-endpoint=" + runtime.Endpoint()
	archive := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(archive, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"pin":            {[]string{"pin", at, "registry.example/app:1"}, "it takes version 1.7 or newer"},
		"unpin":          {[]string{"unpin", at, "registry.example/app:1"}, "label image registry.example/app:1: "},
		"import":         {[]string{"import", at, archive}, archive + ": import: this containerd can't do that"},
		"absent image":   {[]string{"pin", at, "gone:1"}, "the node has no image gone:1"},
		"no archive":     {[]string{"import", at, archive + "x"}, "no such file"},
		"name with tag":  {[]string{"import", at, archive, "--base-name=app:1"}, "want a name without a tag"},
		"no name":        {[]string{"import", at, archive, "--base-name=A B"}, "want a name without a tag"},
		"nothing to pin": {[]string{"pin", at}, "requires at least 1 arg"},
		"output":         {[]string{"pin", at, "app:1", "-o=xml"}, "want text or json"},
		"import output":  {[]string{"import", at, archive, "-o=xml"}, "want text or json"},
		"pull output":    {[]string{"pull", at, "app:1", "-o=xml"}, "want text or json"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := call(t, append([]string{"kubelot", "image"}, c.args...)...)
			if code != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, %s", code, stderr)
			}
		})
	}
	code, stdout, _ := call(t, "kubelot", "image", "pull", at, "-o=json", "registry.example/web:2")
	if code != 0 || !strings.Contains(stdout, `"image": "registry.example/web:2"`) {
		t.Errorf("pull -o json: exit code %d, %s", code, stdout)
	}
}

func TestWhatOtherRuntimesHave(t *testing.T) {
	for _, c := range []struct{ runtime, what, want string }{
		{"cri-o", "pin images", "pinned_images"},
		{"cri-o", "import images", "skopeo copy"},
		{"docker", "pin images", "own tools"},
	} {
		err := onlyContainerd(c.runtime, c.what)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s with %s: %v, want %q", c.what, c.runtime, err, c.want)
		}
	}
	if err := onlyContainerd("containerd", "pin images"); err != nil {
		t.Error(err)
	}
}
