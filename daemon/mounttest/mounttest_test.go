package mounttest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mounttest"
)

func TestMain(m *testing.M) {
	mounttest.Enter()
	os.Exit(m.Run())
}

func TestNobodyElseSeesWhatIsMounted(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("nothing can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	has := func(process any) bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%v/mountinfo", process))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), " "+dir+" ")
	}
	if !has("self") {
		t.Errorf("%s isn't mounted here", dir)
	}
	if has(os.Getppid()) {
		t.Errorf("the process that has started this one sees what is mounted on %s", dir)
	}
}
