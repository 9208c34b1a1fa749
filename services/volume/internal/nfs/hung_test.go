package nfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/program"
)

// hung mounts a filesystem whose server takes requests and never answers: whoever made one can't even be killed. The
// context ends when the server has been asked for its statistics, by stat -f.
func hung(t *testing.T, dir string) (asked context.Context) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this machine has no FUSE: %v", err)
	}
	must(t, os.MkdirAll(dir, 0o750))
	must(t, unix.Mount("nas:/data", dir, "fuse.hung", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	asked, ask := context.WithCancelCause(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		request := make([]byte, 1<<20)
		for {
			n, err := unix.Read(fd, request)
			switch {
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			case err != nil:
				_ = unix.Close(fd)
				return
			case binary.LittleEndian.Uint32(request[4:]) == 26 && n >= 40: // FUSE_INIT
				// A header of 16 bytes, and the version and limits in 64.
				answer := make([]byte, 80)
				binary.LittleEndian.PutUint32(answer, 80)
				copy(answer[8:16], request[8:16])
				binary.LittleEndian.PutUint32(answer[16:], 7)
				binary.LittleEndian.PutUint32(answer[20:], 31)
				binary.LittleEndian.PutUint32(answer[36:], 4096)
				_, _ = unix.Write(fd, answer)
			case binary.LittleEndian.Uint32(request[4:]) == 17: // FUSE_STATFS
				ask(errors.New("the server was asked"))
			}
		}
	}()
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_FORCE)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		<-served
	})
	return asked
}

// While the server is silent the daemon sees what is mounted, and asks the server only by a process that it can leave
// behind. That one makes the mount busy, so it is unmounted by force.
func TestServerThatIsSilent(t *testing.T) {
	b := newBed(t)
	b.real(t, "umount", "stat")
	b.volumes.answerWithin, b.volumes.forceAfter = time.Minute, 500*time.Millisecond
	asked := hung(t, b.dir)
	begin := time.Now()
	if result, err := b.mount(t); err != nil || result.HostPath != b.dir {
		t.Errorf("%+v, %v; want what is mounted already", result, err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %s to see what is mounted", took)
	}
	// A process that is killed before it has asked the server isn't left.
	b.volumes.answerWithin = 300 * time.Millisecond
	for end := time.Now().Add(time.Minute); asked.Err() == nil && time.Now().Before(end); {
		if err := b.volumes.Answers(t.Context(), b.dir); !errors.Is(err, errSilent) {
			t.Fatalf("error %v, want that the server is silent", err)
		}
	}
	// The process of before is still there, and there is no second one.
	before := left(t, b.dir)
	if err := b.volumes.Answers(t.Context(), b.dir); !errors.Is(err, errSilent) || len(left(t, b.dir)) != len(before) {
		t.Errorf("error %v; processes %q, before %q", err, left(t, b.dir), before)
	}
	must(t, b.volumes.Unmount(t.Context(), b.dir))
	if _, err := os.Lstat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount point is left: %v", err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if len(left(t, b.dir)) == 0 {
			return
		}
	}
	t.Errorf("processes are left: %q", left(t, b.dir))
}

// A program that can't be killed is left behind, and the next one about the same mount waits for it.
func TestProgramThatHangsInTheKernel(t *testing.T) {
	b := newBed(t)
	b.real(t, "umount", "stat")
	ctx, cancel := context.WithTimeout(hung(t, b.dir), time.Minute)
	defer cancel()
	var r program.Runner
	_, err := r.Run(ctx, program.Command{About: b.dir, Name: "stat", Args: []string{"-f", b.dir}})
	if !errors.Is(err, program.ErrHangs) || !strings.Contains(err.Error(), "(process ") {
		t.Errorf("error %v, want the process that hangs", err)
	}
	ctx, cancel = limit(t, 100*time.Millisecond)
	defer cancel()
	if _, err = r.Run(ctx, program.Command{About: b.dir, Name: "true"}); !errors.Is(err, program.ErrHangs) {
		t.Errorf("error %v, want that the earlier one has not ended", err)
	}
	must(t, unix.Unmount(b.dir, unix.MNT_FORCE|unix.MNT_DETACH))
	ctx, cancel = limit(t, time.Minute)
	defer cancel()
	if _, err = r.Run(ctx, program.Command{About: b.dir, Name: "true"}); err != nil {
		t.Errorf("after the server is gone: %v", err)
	}
}

// A pod that ends without its volume doesn't get it any more, and one that has it keeps it, whatever the server does.
func TestEnding(t *testing.T) {
	b := newBed(t)
	if _, err := b.volumes.MountAt(t.Context(), b.dir, b.share, true); !errors.Is(err, plugin.ErrNotMounted) {
		t.Errorf("error %v, want that it wasn't mounted", err)
	}
	hung(t, b.dir)
	if _, err := b.volumes.MountAt(t.Context(), b.dir, b.share, true); err != nil {
		t.Error(err)
	}
}

// left are the processes that work on the directory.
func left(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var found []string
	for _, file := range files {
		data, _ := os.ReadFile(file)
		if strings.Contains(string(data), dir) {
			found = append(found, filepath.Dir(file)+" "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}

func isMounted(t *testing.T, dir string) bool {
	t.Helper()
	mounted, err := mountpoint.Mounted(dir)
	must(t, err)
	return mounted
}
