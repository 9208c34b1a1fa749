package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// An administrator who has masked kubelet.service wants it not to start. The package can be installed all the same.
func TestAMaskedKubelet(t *testing.T) {
	dir := t.TempDir()
	const masked = "#!/bin/sh\ncase \"$*\" in *preset* | *is-enabled*) exit 1 ;; *start*) exit 2 ;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(masked), 0o755); err != nil {
		t.Fatal(err)
	}
	const name = "kubelet.postinst.sh"
	body, err := scripts.ReadFile("scripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	script, err := (&stage{}).script(&pack{kind: "kubelet"}, name, "postinst", string(body), "deb")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-s", "configure", "")
	cmd.Stdin, cmd.Env = bytes.NewReader(script), []string{"PATH=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("isn't enabled")) {
		t.Errorf("%v\n%s", err, out)
	}
}
