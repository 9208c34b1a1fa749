package logs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Whatever files are next to a log, only what was rotated of it is touched, and the name of what is rotated now comes
// after all others.
func FuzzPlan(f *testing.F) {
	f.Add("0.log", "0.log\n0.log.20261121-100000\n0.log.20261121-090000.gz\n0.log.20261121-080000.gz.tmp",
		3, int64(1795255200))
	f.Add("0.log", "0.log.20261121-100000\n0.log.20261121-100000.gz", 2, int64(0))
	f.Add("0.log", "0.log.20261121-100000.123\n0.log.99991231-235959\n0.log.gz\n0.log.", 0, int64(1795255200))
	f.Fuzz(func(t *testing.T, log, list string, keep int, unix int64) {
		files := strings.Split(list, "\n")
		slices.Sort(files)
		files = slices.Compact(files)
		now := time.Unix(unix, 0).UTC()
		if now.Year() < 1 || now.Year() > 9998 {
			t.Skip("no clock says that")
		}
		steps := plan(Policy{MaxSize: 1, MaxFiles: keep}, log, 1, files, now)
		touched := slices.Concat(steps.Remove, steps.Compress)
		for i, name := range touched {
			if name == log || !strings.HasPrefix(name, log+".") || !slices.Contains(files, name) ||
				slices.Contains(touched[:i], name) {
				t.Errorf("%q of %q is touched: %+v", name, files, steps)
			}
		}
		if slices.Contains(files, steps.Rotate) || slices.Contains(files, steps.Rotate+zipped) {
			t.Errorf("%q is there already", steps.Rotate)
		}
		rotated, _ := classify(log, files)
		if again, _ := classify(log, append(files, steps.Rotate)); len(again) != len(rotated)+1 ||
			again[len(rotated)] != steps.Rotate {
			t.Errorf("%q doesn't come last: %q", steps.Rotate, again)
		}
	})
}
