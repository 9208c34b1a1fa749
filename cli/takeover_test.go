package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kubelet's flags are taken along unless the units have them already.
func TestSameFlags(t *testing.T) {
	args := []string{"--hostname-override=n", "--node-labels=a=b", "--v=2"}
	for text, want := range map[string]bool{
		"":                                     false,
		"# nothing\n":                          false,
		"KUBELOT_ARGS=--hostname-override=n\n": false,
		"KUBELOT_ARGS=\"--node-labels a=b --v 2 --hostname-override n\"\nX=1\n": true,
		"KUBELOT_ARGS='--no-such'\n": false,
	} {
		path := filepath.Join(t.TempDir(), "kubelot")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if same, err := sameFlags(path, args); same != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, same, err, want)
		}
	}
	if same, err := sameFlags(filepath.Join(t.TempDir(), "absent"), args); same || err != nil {
		t.Errorf("without a file the units have no flags: %v, %v", same, err)
	}
	if _, err := sameFlags(t.TempDir(), args); err == nil {
		t.Error("a file that can't be read is no error")
	}
}

func TestTakeoverWithoutKubelet(t *testing.T) {
	o := takeoverOptions{rootDir: t.TempDir(), stdout: os.Stdout, stderr: os.Stderr}
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "there is nothing to take over") {
		t.Error(err)
	}
	err := becomeKubelet(t.Context(), os.Stdout, t.TempDir(), []string{"/etc/passwd"})
	if err == nil || !strings.Contains(err.Error(), "can't be run") {
		t.Error(err)
	}
	err = becomeKubelet(t.Context(), os.Stdout, t.TempDir(), []string{"/bin/true"})
	if err == nil || !strings.Contains(err.Error(), "no kubelot up runs") {
		t.Error(err)
	}
}
