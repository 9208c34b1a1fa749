package memory

import (
	"encoding/binary"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"

	"github.com/prometheus/procfs"
)

// fileBytes is how much of files, which are those of the executable, is mapped.
func fileBytes(t *testing.T) uint64 {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return status.RssFile
}

func TestTheExecutableIsForgotten(t *testing.T) {
	before := fileBytes(t)
	program := openExecutable(slog.New(slog.DiscardHandler))
	defer program.close()
	program.forget()
	if after := fileBytes(t); before == 0 || after >= before*3/4 {
		t.Errorf("%d KiB of the executable are mapped, %d before; want most of them gone", after>>10, before>>10)
	}
}

func TestMemoryIsGivenBackAtRestAndTwiceLater(t *testing.T) {
	var w restWatch
	const mib = 1 << 20
	var got []int
	for i, allocated := range []uint64{20, 40, 40, 40, 40, 40, 40, 40, 40, 60, 60, 61, 66, 66} {
		if w.look(allocated * mib) {
			got = append(got, i)
			w.gaveBack(allocated * mib)
		}
	}
	// At 2 the first burst is over, at 6 caches that were dropped by timers are free, at 10 the second burst is over, at
	// 13 a third.
	if want := []int{2, 6, 10, 13}; !slices.Equal(got, want) {
		t.Errorf("memory was given back at %v, want %v", got, want)
	}
	got = nil
	for i := range 100 {
		if w.look(66 * mib) {
			got = append(got, i)
			w.gaveBack(66 * mib)
		}
	}
	// What timers drop is free after 20 s, and what is done each minute is over a minute after that.
	if want := []int{3, 15}; !slices.Equal(got, want) {
		t.Errorf("at rest memory was given back at %v, want %v", got, want)
	}
}

// present are the pages of this process from address on that are mapped.
func present(t *testing.T, address uintptr, pages int) (n int) {
	t.Helper()
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pagemap.Close() }()
	entries := make([]byte, 8*pages)
	if _, err := pagemap.ReadAt(entries, int64(address)/int64(os.Getpagesize())*8); err != nil {
		t.Fatal(err)
	}
	for entry := range slices.Chunk(entries, 8) {
		if binary.NativeEndian.Uint64(entry)>>63 != 0 {
			n++
		}
	}
	return n
}

func TestAPageOfTheExecutableComesBackAlone(t *testing.T) {
	const group = 16
	program := openExecutable(slog.New(slog.DiscardHandler))
	defer program.close()
	program.forget()
	if program.pager < 0 {
		t.Skip("the machine has no userfaultfd")
	}
	page := uintptr(os.Getpagesize())
	for _, m := range program.mappings {
		for start := m.StartAddr + group*page - m.StartAddr%(group*page); start+
			group*page <= m.EndAddr; start += group * page {
			if !m.Perms.Read || present(t, start, group) > 0 {
				continue
			}
			touched := *(*byte)(unsafe.Add(unsafe.Pointer(nil), start+group/2*page))
			if n := present(t, start, group); n != 1 {
				t.Errorf("%d pages are mapped after the byte %#x of one was read", n, touched)
			}
			return
		}
	}
	t.Error("each group of pages has one in use")
}

func TestGOGCOfTheEnvironmentWins(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	for _, c := range []struct {
		environment string
		want        int
	}{{"77", 77}, {"", gcPercent}} {
		t.Setenv("GOGC", c.environment)
		collectOften()
		got := debug.SetGCPercent(77)
		if got != c.want {
			t.Errorf("GOGC=%q: it is %d, want %d", c.environment, got, c.want)
		}
	}
}

func TestProfileIsForgone(t *testing.T) {
	before := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = before }()
	if ForgoProfile(); runtime.MemProfileRate != 0 {
		t.Error("memory is sampled still")
	}
}
