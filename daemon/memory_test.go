package daemon

import (
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
