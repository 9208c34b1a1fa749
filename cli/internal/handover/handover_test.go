package handover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"plain": {[]string{"--v=2", "--node-ip=10.0.0.1"}, `"--v=2 --node-ip=10.0.0.1"`},
		"none":  {nil, `""`},
		"a space and quotes": {
			[]string{`--manifest-url-header=A:b c`, `--node-labels=a="b"`},
			`"\"--manifest-url-header=A:b c\" \"--node-labels=a=\\\"b\\\"\""`,
		},
		"what a shell would expand": {[]string{"--cluster-domain=$HOME`x`"}, "\"--cluster-domain=\\$HOME\\`x\\`\""},
		"a backslash":               {[]string{`--x=a\b`}, `"\"--x=a\\\\b\""`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := environment(c.args)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if got := lines[len(lines)-1]; got != "KUBELOT_ARGS="+c.want {
				t.Errorf("got  %s\nwant KUBELOT_ARGS=%s", got, c.want)
			}
		})
	}
}

func TestLineBreaksAreRefused(t *testing.T) {
	if _, err := environment([]string{"--x=a\nKUBELOT_ARGS=b"}); err == nil ||
		!strings.Contains(err.Error(), "control character") {
		t.Errorf("error %v", err)
	}
}

// systemctl is a program that writes down what it was asked for.
func systemctl(t *testing.T, script string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"$@\" >>" + log + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

func TestProxies(t *testing.T) {
	got := proxies([]string{
		"PATH=/bin", `HTTPS_PROXY=http://proxy:3128/"$x"`, "no_proxy=10.0.0.0/8,.svc", "HTTP_PROXY=a\nKUBELOT_ARGS=b", "X_PROXY=x",
	})
	if want := "HTTPS_PROXY=\"http://proxy:3128/\\\"\\$x\\\"\"\nno_proxy=\"10.0.0.0/8,.svc\"\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if NamesProxies([]string{"PATH=/bin"}) || !NamesProxies([]string{"http_proxy=x"}) {
		t.Error("it doesn't know whether there are proxies")
	}
}

func TestDo(t *testing.T) {
	log := systemctl(t, "")
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	file := filepath.Join(t.TempDir(), "run/kubelet.env")
	var out strings.Builder
	if err := Do(t.Context(), file, []string{"--v=3"}, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(text), "KUBELOT_ARGS=\"--v=3\"\n") ||
		!strings.Contains(string(text), "HTTPS_PROXY=\"http://proxy:3128\"\n") {
		t.Errorf("file %q, %v", text, err)
	}
	calls, err := os.ReadFile(log)
	again, start, _ := strings.Cut(string(calls), "\n")
	// A restart of the target would stop kubelet.service.
	if err != nil || start != "--no-block start kubelot.target\n" || !strings.HasPrefix(again, "--no-block try-restart ") {
		t.Errorf("systemctl was called with %q, %v", calls, err)
	}
	for _, unit := range []string{"kubelot-bus.service", "kubelot-status.service", "kubelot-compact.service"} {
		if !slices.ContainsFunc(strings.Fields(again), func(word string) bool {
			is, err := filepath.Match(word, unit)
			return is && err == nil
		}) {
			t.Errorf("%s isn't started again: %s", unit, again)
		}
	}
	if !strings.Contains(out.String(), file) {
		t.Errorf("it says %q", out.String())
	}
}

func TestDoSaysWhatSystemdSays(t *testing.T) {
	systemctl(t, "echo Unit kubelot.target not found. >&2; exit 5\n")
	err := Do(t.Context(), filepath.Join(t.TempDir(), "kubelet.env"), nil, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "Unit kubelot.target not found.") {
		t.Errorf("error %v", err)
	}
	if err := Do(t.Context(), "/proc/none/kubelet.env", nil, &strings.Builder{}); err == nil {
		t.Error("a file that can't be written is no error")
	}
}
