package daemon

import (
	"slices"
	"testing"

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
	if err := forgetExecutable(); err != nil {
		t.Fatal(err)
	}
	if after := fileBytes(t); before == 0 || after >= before*3/4 {
		t.Errorf("%d KiB of the executable are mapped, %d before; want most of them gone", after>>10, before>>10)
	}
}

func TestMemoryIsGivenBackAtRestAndOnceMoreLater(t *testing.T) {
	var w restWatch
	const mib = 1 << 20
	var got []int
	for i, allocated := range []uint64{20, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 60, 60, 61, 66, 66} {
		if w.worth(allocated * mib) {
			got = append(got, i)
			w.gaveBack(allocated * mib)
		}
	}
	// At 2 the first burst is over, at 8 caches that were dropped by timers are free, at 12 the second burst is over, at 15 a third.
	if want := []int{2, 8, 12, 15}; !slices.Equal(got, want) {
		t.Errorf("memory was given back at %v, want %v", got, want)
	}
}
