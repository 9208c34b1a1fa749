package takeover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFlags(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "kubelot-.service.d")
	if err := keepFlags(dir, []string{"--node-ip=10.0.0.1", "--node-labels=a=b"}, nil); err != nil {
		t.Fatal(err)
	}
	dropIn, err := os.ReadFile(filepath.Join(dir, "15-takeover.conf"))
	if err != nil || !strings.HasSuffix(string(dropIn), "[Service]\nEnvironmentFile="+dir+"/takeover.env\n") {
		t.Errorf("drop-in %q, %v", dropIn, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "takeover.env"))
	if err != nil || !strings.HasSuffix(string(env), "\nKUBELOT_ARGS=\"--node-ip=10.0.0.1 --node-labels=a=b\"\n") {
		t.Errorf("flags %q, %v", env, err)
	}
	for line := range strings.Lines(string(env)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "KUBELOT_ARGS=") {
			t.Errorf("systemd can't read the line %q", line)
		}
	}
	for range 2 {
		if err := dropFlags(dir); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	// A directory that has others' files stays.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dropFlags(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine.conf")); err != nil {
		t.Error(err)
	}
}

// Flags that an earlier takeover has kept are not this one's: they come before those in /etc/default/kubelot.
func TestEarlierFlagsGo(t *testing.T) {
	calls := systemctl(t, "")
	dir := filepath.Join(t.TempDir(), "kubelot-.service.d")
	if kept, err := takeFlags(t.Context(), dir, false, []string{"--node-ip=10.0.0.1"}, nil); !kept || err != nil {
		t.Fatal(kept, err)
	}
	// kubeadm has started the kubelet, which has the flags of /etc/default/kubelot by now.
	for range 2 {
		if kept, err := takeFlags(t.Context(), dir, true, []string{"--v=2"}, nil); kept || err != nil {
			t.Fatal(kept, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the earlier flags are left: %v", err)
	}
	if got := calls(); got != "daemon-reload\ndaemon-reload\n" {
		t.Errorf("systemctl is called with\n%s", got)
	}
}

// A file that only root can read is opened for the daemons' group, and nobody loses a right.
func TestGrant(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it changes the group of files")
	}
	const daemons, admins = 4711, 4712
	path := filepath.Join(t.TempDir(), "config.yaml")
	for _, c := range []struct {
		mode, want os.FileMode
		gid        int
	}{
		{0o600, 0o640, daemons},
		{0o400, 0o440, daemons},
		{0o640, 0o640, admins},
		{0o604, 0o604, admins},
		{0o644, 0o644, admins},
	} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 0, admins), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if err := grant(path, daemons); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode() != c.want || int(gid) != c.gid {
			t.Errorf("mode %o became %o with the group %d, want %o with %d", c.mode, info.Mode(), gid, c.want, c.gid)
		}
	}
	if err := grant(filepath.Join(t.TempDir(), "none"), daemons); err != nil {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "drop-ins")
	if err := errors.Join(os.Mkdir(dir, 0o700), grant(dir, daemons)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("a directory of drop-ins became %v, %v", info.Mode(), err)
	}
}

// openDir is a temporary directory that all users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Whether the daemons' users can read the configuration depends on modes, groups and directories.
func TestReadable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it looks as other users")
	}
	root := openDir(t)
	const group = 4711
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{group}}
	file, dir := filepath.Join(root, "config.yaml"), filepath.Join(root, "drop-ins")
	dropIn := filepath.Join(dir, "1.conf")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	set := func(path string, mode os.FileMode, gid int) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 0, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	set(dropIn, 0o644, 0)
	for _, c := range []struct {
		mode os.FileMode
		gid  int
		want string
	}{
		{0o644, 0, ""},
		{0o640, group, ""},
		{0o640, 0, file},
		{0o600, group, "chgrp kubelot " + file + " && chmod 0640 " + file},
	} {
		set(file, c.mode, c.gid)
		err := readable(t.Context(), nobody, file, dir)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("mode %o of group %d: %v, want %q", c.mode, c.gid, err, c.want)
		}
	}
	set(file, 0o644, 0)
	set(dropIn, 0o600, 0)
	if err := readable(t.Context(), nobody, file, dir); err == nil || !strings.Contains(err.Error(), dropIn) {
		t.Errorf("a drop-in that can't be read: %v", err)
	}
	if err := readable(t.Context(), nobody, "", ""); err != nil {
		t.Errorf("without files: %v", err)
	}
}

// Where a directory is closed, the directory is what is to be changed, whatever it has. Drop-ins may lie in directories
// below that of --config-dir.
func TestClosedDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it looks as other users")
	}
	root := openDir(t)
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	dir := filepath.Join(root, "drop-ins")
	below := filepath.Join(dir, "more")
	file := filepath.Join(below, "2.conf")
	enter := "chgrp kubelot " + dir + " && chmod g+rx " + dir
	for _, c := range []struct {
		mode        os.FileMode // of dir
		remove      string
		config, say string
	}{
		{0o755, "", "", "chmod 0640 " + file},
		{0o700, "", "", enter},
		{0o744, "", "", enter},
		{0o700, "", file, enter},
		{0o700, below, "", enter},
	} {
		if err := errors.Join(os.MkdirAll(below, 0o755), os.WriteFile(file, nil, 0o600), os.RemoveAll(c.remove),
			os.Chmod(dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		drops := dir
		if c.config != "" {
			drops = ""
		}
		err := readable(t.Context(), nobody, c.config, drops)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("mode %o, without %q: %v, want %q", c.mode, c.remove, err, c.say)
		}
	}
}
