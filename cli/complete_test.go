package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cri/critest"
)

// offers is what the shell would offer for the last word.
func offers(t *testing.T, args ...string) []string {
	t.Helper()
	code, stdout, stderr := call(t, append([]string{"kubelot", cobra.ShellCompNoDescRequestCmd}, args...)...)
	if code != 0 {
		t.Errorf("completion of %q: exit code %d, %s", args, code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("completion of %q: %s", args, stdout)
	}
	return lines[:len(lines)-1]
}

func TestCompletionOfNames(t *testing.T) {
	runtime := critest.Start(t)
	runtime.AddImage("registry.example/app:1", 5<<20)
	runtime.AddImage("registry.example/web:2", 5<<20)
	at := "--container-runtime-endpoint=" + runtime.Endpoint()
	none := "--run-dir=" + t.TempDir()
	installed := t.TempDir()
	for _, name := range []string{"bin", "v0.1.0", "v0.2.0"} {
		if err := os.Mkdir(filepath.Join(installed, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bin := "--bin-dir=" + filepath.Join(installed, "bin")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"images":          {[]string{"image", "pin", at, ""}, "registry.example/app:1 registry.example/web:2"},
		"images, begun":   {[]string{"image", "pull", at, "registry.example/w"}, "registry.example/web:2"},
		"images, another": {[]string{"image", "unpin", at, "registry.example/app:1", ""}, "registry.example/web:2"},
		"daemons":         {[]string{"tap", "--daemon", "p"}, "pleg podsync probe"},
		"install":         {[]string{"install", "lease", "p"}, "pleg podsync probe"},
		"versions":        {[]string{"upgrade", bin, ""}, "v0.1.0 v0.2.0"},
		"upgrade":         {[]string{"upgrade", bin, "v0.2.0", "pleg", "p"}, "podsync probe"},
		"left out":        {[]string{"up", "--without", "v"}, "volume"},
		// A node without a crew, or without a runtime.
		"pods":       {[]string{"why", none, ""}, "node"},
		"restart":    {[]string{"restart", none, ""}, ""},
		"retry":      {[]string{"retry", none, ""}, ""},
		"delete":     {[]string{"delete", none, ""}, ""},
		"namespaces": {[]string{"tap", none, "--namespace", ""}, ""},
		"containers": {[]string{"retry", none, "web", "--container", ""}, ""},
		"no runtime": {[]string{"image", "pin", "--container-runtime-endpoint=unix:///does/not/exist", ""}, ""},
		"second pod": {[]string{"why", none, "web", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(offers(t, c.args...), " "); got != c.want {
				t.Errorf("%q: offers %q, want %q", c.args, got, c.want)
			}
		})
	}
}

// Whoever adds a command with such a flag or argument gets its completion, or must say where the names come from.
func TestEveryNameIsCompleted(t *testing.T) {
	root := Command(os.Stdout, os.Stderr)
	paths := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		paths[c.CommandPath()] = true
		for _, name := range []string{"container", "daemon", "namespace", "pod", "topic", "without", "output"} {
			if _, ok := c.GetFlagCompletionFunc(name); c.Flags().Lookup(name) != nil && !ok {
				t.Errorf("%s --%s has no completion", c.CommandPath(), name)
			}
		}
		for _, what := range []string{" POD", " IMAGE"} {
			if strings.Contains(c.Use, what) && c.ValidArgsFunction == nil {
				t.Errorf("%s takes names, and has no completion for them", c.CommandPath())
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for path := range byArgument {
		if !paths[path] {
			t.Errorf("there is no command %s", path)
		}
	}
}

func TestContainerNames(t *testing.T) {
	pod := func(name string, containers ...string) topic.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		return topic.Pod{Pod: p, Lifecycle: topic.Syncing}
	}
	state := pods.State{Updates: map[string]topic.Pod{"u1": pod("web", "app", "log"), "u2": pod("db", "sql"), "u3": {}}}
	for name, want := range map[string]string{
		"web": "app init log", "default/db": "init sql", "nobody": "", "": "app init init log sql",
	} {
		got := containerNames(state, name)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("of pod %q: %q, want %q", name, got, want)
		}
	}
	if got := listed(state, func(u topic.Pod) bool { return u.Source == topic.SourceFile }); len(got) != 0 {
		t.Errorf("static pods: %q", got)
	}
}
