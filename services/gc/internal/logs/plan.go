package logs

import (
	"slices"
	"strings"
	"time"
)

// The suffixes of rotated logs.
const (
	zipped    = ".gz"
	temporary = ".tmp"
	// stamp is the time of the rotation in the name of what was rotated.
	stamp = "20060102-150405"
)

// Policy is when a log is rotated, in bytes, never if that is negative, and how many files it may have, the one that is
// written to among them.
type Policy struct {
	MaxSize  int64
	MaxFiles int
}

// Steps are what must be done about one log; names are those of files.
type Steps struct {
	Remove   []string
	Compress []string
	// Rotate is the name that the log gets; empty if it stays.
	Rotate string
	// Reopen has the runtime make the log that is missing.
	Reopen bool
}

// None reports whether there is nothing to do.
func (s Steps) None() bool {
	return len(s.Remove) == 0 && len(s.Compress) == 0 && s.Rotate == "" && !s.Reopen
}

// plan decides about the log with the name, among the files of its directory. size is negative where it is missing.
func plan(p Policy, log string, size int64, files []string, now time.Time) Steps {
	rotated, steps := classify(log, files)
	steps.Reopen = size < 0
	if p.MaxSize >= 0 && size >= p.MaxSize {
		steps.Rotate = next(log, rotated, now)
	}
	keep := max(p.MaxFiles-1, 0)
	if steps.Rotate != "" {
		keep = max(p.MaxFiles-2, 0)
	}
	if excess := len(rotated) - keep; excess > 0 {
		steps.Remove = append(steps.Remove, rotated[:excess]...)
		rotated = rotated[excess:]
	}
	for i, f := range rotated {
		// The log that was rotated last stays as it is: log collectors and kubectl logs may still be reading it.
		last := i == len(rotated)-1 && steps.Rotate == ""
		if !strings.HasSuffix(f, zipped) && !last {
			steps.Compress = append(steps.Compress, f)
		}
	}
	return steps
}

// next is the name of what is rotated now. It comes after all others, also where the clock was set back, as to winter
// time each year: by their names the oldest are removed.
func next(log string, rotated []string, now time.Time) string {
	name := log + "." + now.Format(stamp)
	if len(rotated) == 0 {
		return name
	}
	last := strings.TrimSuffix(rotated[len(rotated)-1], zipped)
	if name > last {
		return name
	}
	after, _ := stampAfter(last[len(log)+1:]) // classify has parsed it
	return log + "." + after
}

// stampAfter is the stamp one second later. It is not ok if text is no stamp: time.Parse alone takes fractions of a
// second too. Nor is it for the last second of the year 9999, after which the order of the names ends.
func stampAfter(text string) (after string, ok bool) {
	at, err := time.Parse(stamp, text)
	after = at.Add(time.Second).Format(stamp)
	return after, err == nil && at.Format(stamp) == text && len(after) == len(stamp)
}

// classify are the rotated logs, oldest first, and what an interrupted pass has left: half a compressed log, or a log
// that has been compressed and is still there.
func classify(log string, files []string) (rotated []string, steps Steps) {
	has := map[string]bool{}
	for _, f := range files {
		has[f] = true
	}
	for _, f := range files {
		rest, ok := strings.CutPrefix(f, log+".")
		if !ok {
			continue
		}
		at, isTemporary := strings.CutSuffix(rest, temporary)
		if _, ok := stampAfter(strings.TrimSuffix(at, zipped)); !ok {
			continue // somebody else's
		}
		if isTemporary || has[f+zipped] {
			steps.Remove = append(steps.Remove, f)
			continue
		}
		rotated = append(rotated, f)
	}
	slices.Sort(rotated)
	slices.Sort(steps.Remove)
	return rotated, steps
}
