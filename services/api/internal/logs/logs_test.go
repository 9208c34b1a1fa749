package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sample = `2026-01-01T00:00:01.5Z stdout F one
2026-01-01T00:00:02Z stderr F two
no record
2026-01-01T00:00:03Z stdout P thr
2026-01-01T00:00:04Z stdout F ee
2026-01-01T00:00:05Z stdout F:x 
2026-01-01T00:00:06Z stdout F last`

func all() Options { return Options{Tail: -1, Limit: -1, Stdout: true, Stderr: true} }

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, sample)
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"all":         {func(*Options) {}, "one\ntwo\nthree\n\nlast"},
		"stdout":      {func(o *Options) { o.Stderr = false }, "one\nthree\n\nlast"},
		"stderr":      {func(o *Options) { o.Stdout = false }, "two\n"},
		"since":       {func(o *Options) { o.Since = time.Date(2026, 1, 1, 0, 0, 4, 0, time.UTC) }, "ee\n\nlast"},
		"limit":       {func(o *Options) { o.Limit = 6 }, "one\ntw"},
		"tail none":   {func(o *Options) { o.Tail = 0 }, ""},
		"tail":        {func(o *Options) { o.Tail = 2 }, "\nlast"},
		"tail of all": {func(o *Options) { o.Tail = 100 }, "one\ntwo\nthree\n\nlast"},
		"timestamps": {
			func(o *Options) { o.Timestamps, o.Tail = true, 4 },
			"2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:05.000000000Z \n2026-01-01T00:00:06.000000000Z last",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := all()
			c.change(&o)
			var out bytes.Buffer
			if err := Read(t.Context(), path, o, &out); err != nil || out.String() != c.want {
				t.Errorf("%q, %v; want %q", out.String(), err, c.want)
			}
		})
	}
}

func TestReadTellsWhatIsMissing(t *testing.T) {
	err := Read(t.Context(), filepath.Join(t.TempDir(), "none.log"), all(), io.Discard)
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "failed to try resolving symlinks in path") {
		t.Error(err)
	}
}

// The end is found from behind, over blocks and however the file ends.
func TestTailOverBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var whole strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&whole, "2026-01-01T00:00:01Z stdout F line %d %s\n", i, strings.Repeat("x", i%100))
	}
	write(t, path, whole.String())
	for _, n := range []int64{1, 2, 999, 1000, 4999, 5000, 6000} {
		o := all()
		o.Tail = n
		var out bytes.Buffer
		if err := Read(t.Context(), path, o, &out); err != nil {
			t.Fatal(err)
		}
		if got := int64(bytes.Count(out.Bytes(), []byte("\n"))); got != min(n, 5000) ||
			!strings.Contains(out.String(), "line 4999") {
			t.Errorf("tail %d gave %d lines", n, got)
		}
	}
}

// A line of many MiB passes through without being held.
func TestLongLinesCostNoMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const size = 256 << 20
	header := "2026-01-01T00:00:01Z stdout F "
	if _, err := f.WriteString(header); err != nil {
		t.Fatal(err)
	}
	// A hole reads as zeros and takes no room on the disk.
	if err := f.Truncate(int64(len(header)) + size); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var n counter
	if err := Read(t.Context(), path, all(), &n); err != nil || n != size {
		t.Errorf("%d bytes, %v; want %d", n, err, size)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		write(t, path, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:01Z stdo")
		var out bytes.Buffer
		alive := true
		end := make(chan error, 1)
		go func() {
			end <- Follow(t.Context(), path, all(), func(context.Context) bool { return alive }, &out)
		}()
		wants := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if out.String() != want {
				t.Fatalf("so far %q, want %q", out.String(), want)
			}
		}
		wants("one\n")
		write(t, path, "ut F two\n2026-01-01T00:00:01Z stdout F th")
		wants("one\ntwo\nth")
		write(t, path, "ree\n")
		wants("one\ntwo\nthree\n")
		if err := os.Rename(path, path+".20260101-000000"); err != nil {
			t.Fatal(err)
		}
		write(t, path+".20260101-000000", "2026-01-01T00:00:01Z stdout F into the old\n")
		wants("one\ntwo\nthree\ninto the old\n")
		write(t, path+".20260101-000000", "2026-01-01T00:00:01Z stdout F the old's last\n")
		write(t, path, "2026-01-01T00:00:01Z stdout F new\n")
		wants("one\ntwo\nthree\ninto the old\nthe old's last\nnew\n")
		// It is held back by the rotation and writes into the old file after the new one is there.
		if err := os.Rename(path, path+".2"); err != nil {
			t.Fatal(err)
		}
		write(t, path, "2026-01-01T00:00:01Z stdout F newest\n")
		time.Sleep(longest + 5*time.Millisecond)
		write(t, path+".2", "2026-01-01T00:00:01Z stdout F late\n")
		wants("one\ntwo\nthree\ninto the old\nthe old's last\nnew\nlate\nnewest\n")
		alive = false
		write(t, path, "2026-01-01T00:00:01Z stdout F goodbye\n")
		wants("one\ntwo\nthree\ninto the old\nthe old's last\nnew\nlate\nnewest\ngoodbye\n")
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
}

func TestFollowEndsWithItsReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, sample)
	gone := errors.New("client went away")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(gone) })
		if err := Follow(ctx, path, all(), func(context.Context) bool { return true }, io.Discard); !errors.Is(err, gone) {
			t.Errorf("Follow = %v", err)
		}
	})
	reader, writer := io.Pipe()
	reader.CloseWithError(gone)
	if err := Follow(t.Context(), path, all(), func(context.Context) bool { return true }, writer); !errors.Is(err, gone) {
		t.Errorf("Follow = %v", err)
	}
}

// A reader that went away ends the reading of a log that is already there, and what is no file isn't waited for.
func TestReadEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, strings.Repeat(sample+"\n", 10000))
	gone := errors.New("client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	var n counter
	out := writerFunc(func(p []byte) (int, error) {
		cancel(gone)
		return n.Write(p)
	})
	if err := Read(ctx, path, all(), out); !errors.Is(err, gone) || n > 100 {
		t.Errorf("%d bytes, %v", n, err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Read(t.Context(), pipe, all(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// FuzzRead feeds any file: nothing panics, limits hold, and what is followed is what is read. Shrinking each new input
// takes up to a minute, so a short run wants -fuzzminimizetime=1x.
func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(-1), int64(-1), false)
	f.Add([]byte(sample), int64(2), int64(7), true)
	f.Add([]byte("2026-01-01T00:00:01Z stdout P"), int64(1), int64(-1), true)
	f.Add([]byte("\n\n   \n2026-01-01T00:00:01Z stdout P \n"), int64(3), int64(1), true)
	f.Fuzz(func(t *testing.T, data []byte, tail, limit int64, timestamps bool) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		o := Options{Tail: tail, Limit: max(limit, -1), Timestamps: timestamps, Stdout: true, Stderr: true}
		if o.Limit == 0 {
			o.Limit = 1
		}
		var read, followed bytes.Buffer
		if err := Read(t.Context(), path, o, &read); err != nil {
			t.Fatal(err)
		}
		// In a bubble its pauses take no time.
		synctest.Test(t, func(t *testing.T) {
			if err := Follow(t.Context(), path, o, func(context.Context) bool { return false }, &followed); err != nil {
				t.Fatal(err)
			}
		})
		if o.Limit > 0 && int64(read.Len()) > o.Limit {
			t.Errorf("%d bytes are more than %d", read.Len(), o.Limit)
		}
		if !bytes.HasPrefix(followed.Bytes(), read.Bytes()) {
			t.Errorf("read %q, followed %q", read.Bytes(), followed.Bytes())
		}
		if !timestamps && read.Len() > len(data) {
			t.Errorf("%d bytes came out of %d", read.Len(), len(data))
		}
	})
}
