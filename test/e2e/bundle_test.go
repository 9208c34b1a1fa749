package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// bundled are the files of the archive that kubelot bundle writes with these arguments once the bus answers, and its
// size when unpacked.
func bundled(t *testing.T, args ...string) (files map[string][]byte, size int) {
	t.Helper()
	kit.Eventually(t, "an archive with the history", func() error {
		if files, size = bundledOnce(t, args...); len(files["bus/history.jsonl"]) == 0 {
			return fmt.Errorf("it has none: %s", files["manifest.json"])
		}
		return nil
	})
	return files, size
}

func bundledOnce(t *testing.T, args ...string) (files map[string][]byte, size int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	out, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), append([]string{
		"bundle", "--run-dir=" + bed.Bed.Path("run"), "--file=" + path,
	}, args...)...))
	if err != nil {
		t.Fatalf("kubelot bundle: %v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive's mode is %v, %v", info.Mode(), err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, size
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name], size = content, size+len(content)
	}
}

// The archive of a node has its history, as large as it may be, for why, replay and the check, and no secrets.
func TestBundle(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: there}\nstringData: {key: geheim}\n---\n" +
		pod("noted", container(`env: [{name: A, value: geheim}, {name: B, valueFrom: {secretKeyRef: {name: there, key: key}}}]`,
			"")) + "---\n" +
		pod("stuck", container("volumeMounts: [{name: v, mountPath: /v}]",
			"  volumes: [{name: v, configMap: {name: absent}}]\n")))
	ns.Running("noted")
	says(t, ns, "stuck", `the ConfigMap "absent" doesn't exist`)

	whole, _ := bundled(t)
	small, size := bundled(t, "--max-size=1")
	if limit := 1<<20 + len(small["manifest.json"]); size > limit {
		t.Errorf("of 1 MiB it has %d bytes", size)
	}
	for kind, files := range map[string]map[string][]byte{"whole": whole, "small": small} {
		for name, content := range files {
			if bytes.Contains(content, []byte("geheim")) {
				t.Errorf("%s: %s has the secret", kind, name)
			}
		}
		history := files["bus/history.jsonl"]
		if len(history) == 0 || history[len(history)-1] != '\n' {
			t.Fatalf("%s: the history has %d bytes: %s", kind, len(history), files["manifest.json"])
		}
		path := filepath.Join(t.TempDir(), "history.jsonl")
		if err := os.WriteFile(path, history, 0o600); err != nil {
			t.Fatal(err)
		}
		var header struct {
			Settings map[string]any `json:"settings"`
		}
		first, _, _ := bytes.Cut(history, []byte("\n"))
		if err := json.Unmarshal(first, &header); err != nil || header.Settings["evictionHard"] == nil {
			t.Errorf("%s: the history begins with %s, %v", kind, first, err)
		}
		for _, args := range [][]string{{"replay", path}, {"top", "--once", "--replay", path}} {
			if out, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), args...)); err != nil {
				t.Errorf("%s: kubelot %v: %v\n%s", kind, args, err, out)
			}
		}
		// What it says of other tests' pods is theirs to judge; here it must be able to read the history.
		out, err := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), "replay", "--check", path))
		if exit, is := errors.AsType[*exec.ExitError](err); err != nil && (!is || exit.ExitCode() != 3) {
			t.Errorf("%s: kubelot replay --check: %v\n%s", kind, err, out)
		}
	}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, whole["bus/history.jsonl"], 0o600); err != nil {
		t.Fatal(err)
	}
	if out := asks(t, ns.Name+"/stuck", "--replay", path); !strings.Contains(out, `the ConfigMap "absent" doesn't exist`) {
		t.Errorf("kubelot why --replay says:\n%s", out)
	}
}
