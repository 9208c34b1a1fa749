package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// homes is where the systems of the tests are, each in a directory that has the name of its test.
const homes = "../../.run/packages-test/systems"

// homeOf is the directory of a test.
func homeOf(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(homes, name))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rootOf is where the system of a test has its files.
func rootOf(home string) string { return filepath.Join(home, "root") }

// home makes an empty directory, which goes with the test. By its name it is the same one in every run: what runs in it
// still after a test was killed, what is mounted there and what lies there, goes first.
func home(t *testing.T, name string) string {
	t.Helper()
	dir := homeOf(t, name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatalf("lock %s: %v: another run of this test is at work", dir, err)
	}
	if err := vacate(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vacate(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// vacate ends all processes of the system that a home has, removes what is mounted there, and the directory.
func vacate(home string) error {
	deadline := time.Now().Add(patience)
	for {
		pids, err := inhabitants(home)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the system in %s can't be killed", pids, home)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(50 * time.Millisecond)
	}
	mounts, err := mountsBelow(home)
	if err != nil {
		return err
	}
	// What was mounted last may lie in what was mounted before.
	for _, path := range slices.Backward(mounts) {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return os.RemoveAll(home)
}

// inhabitants are the processes whose root directory is the system's, in a chroot or in a container, and the
// systemd-nspawn that has started them.
func inhabitants(home string) ([]int, error) {
	root, err := os.Stat(rootOf(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// What can't be read has ended meanwhile, or is a process of the kernel.
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if rootIs(pid, root) || slices.Contains(strings.Split(string(cmdline), "\x00"), "--directory="+rootOf(home)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func rootIs(pid int, root os.FileInfo) bool {
	its, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid))
	return err == nil && os.SameFile(its, root)
}

// mountsBelow are the mount points in a directory, in the order in which they were made.
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, dir+"/") {
			found = append(found, path)
		}
	}
	return found, nil
}

// A run that was killed leaves a system that is booted, a mount and files. The next run of the same test clears them.
func TestKilledRunIsCleared(t *testing.T) {
	built(t, "KUBELOT_PACKAGES")
	const marker = "running"
	if os.Getenv("PACKAGES_TEST_VICTIM") != "" {
		s := debian(t, "bookworm-systemd", systemdPackages...)
		if err := syscall.Mount("tmpfs", filepath.Join(s.root, "mnt"), "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		s.boot(t)
		if err := os.WriteFile(filepath.Join(s.dir, marker), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	archive(t, "bookworm-systemd", systemdPackages...) // here, as it may take long
	dir := homeOf(t, t.Name())
	if err := os.RemoveAll(filepath.Join(dir, marker)); err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestKilledRunIsCleared$", "-test.v")
	victim.Env = append(os.Environ(), "PACKAGES_TEST_VICTIM=yes")
	var out strings.Builder
	victim.Stdout, victim.Stderr = &out, &out
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = victim.Wait(); close(ended) }()
	eventually(t, "the run that will be killed has its system", func() error {
		select {
		case <-ended:
			t.Fatalf("it ended: %s", out.String())
		default:
		}
		_, err := os.Stat(filepath.Join(dir, marker))
		return err
	})
	lived, err := inhabitants(dir)
	if err != nil || len(lived) < 3 {
		t.Errorf("a system that is booted has the processes %v, %v", lived, err)
	}
	root, err := os.Stat(rootOf(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) != 1 {
		t.Errorf("the run that was killed has left the mounts %q, %v", mounts, err)
	}

	if got := home(t, t.Name()); got != dir {
		t.Errorf("the next run is in %s", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the next run finds %v, %v", entries, err)
	}
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		t.Errorf("the next run finds the mounts %q, %v", mounts, err)
	}
	for _, pid := range lived {
		if rootIs(pid, root) {
			t.Errorf("process %d runs still", pid)
		}
	}
}
