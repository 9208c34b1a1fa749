package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// says is a part with this content.
func says(name, text string) Part {
	return Part{Name: name, Write: func(_ context.Context, out io.Writer) error {
		_, err := io.WriteString(out, text)
		return err
	}}
}

// unpacked are the files of an archive by name, and its manifest.
func unpacked(t *testing.T, archive []byte) (map[string]string, Manifest) {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil || header.Mode != 0o600 || !header.ModTime.Equal(noon) {
			t.Fatalf("%s: %v, mode %o, of %s", header.Name, err, header.Mode, header.ModTime)
		}
		files[header.Name] = string(content)
	}
	var m Manifest
	if err := json.Unmarshal([]byte(files["dir/manifest.json"]), &m); err != nil {
		t.Fatalf("manifest: %v in %v", err, files)
	}
	return files, m
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	half := Part{Name: "half.txt", Write: func(_ context.Context, out io.Writer) error {
		_, _ = io.WriteString(out, "ha")
		return errors.New("no more")
	}}
	fails := Part{Name: "fails", Write: func(context.Context, io.Writer) error { return errors.New("there is none") }}
	parts := []Part{says("a.txt", "12345"), half, fails, says("empty", ""), says("large", "1234567890"), says("b", "1234")}
	parts = append(parts, says("late", "1"))
	m, err := Write(t.Context(), &out, parts, Manifest{Created: noon, Version: "v1"},
		Options{Dir: "dir", Part: 8, Total: 18, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	files, stored := unpacked(t, out.Bytes())
	delete(files, "dir/manifest.json")
	want := map[string]string{"dir/a.txt": "12345", "dir/half.txt": "ha", "dir/large": "12345678", "dir/b": "123"}
	if !maps.Equal(files, want) {
		t.Errorf("the archive has %q, want %q", files, want)
	}
	entries := []Entry{
		{Name: "a.txt", Bytes: 5},
		{Name: "half.txt", Bytes: 2, Error: "no more"},
		{Name: "fails", Error: "there is none"},
		{Name: "empty"},
		{Name: "large", Bytes: 8, CutOff: true},
		{Name: "b", Bytes: 3, CutOff: true},
		{Name: "late", Error: "left out: the archive is as large as it may be"},
	}
	for _, got := range []Manifest{m, stored} {
		if !slices.Equal(got.Files, entries) || got.Version != "v1" || !got.Created.Equal(noon) {
			t.Errorf("the manifest is %+v", got)
		}
	}
	text := Text(m, "x.tar.gz", 1025)
	wantText := `x.tar.gz: 5 files, 2 KiB
not collected, or not whole:
  half.txt: no more
  fails: there is none
  late: left out: the archive is as large as it may be
larger than a file may be:
  large: 0 KiB are there
  b: 0 KiB are there
Logs are as the programs wrote them: read them before you send the file to others.
`
	if text != wantText {
		t.Errorf("the text is\n%s\nwant\n%s", text, wantText)
	}
}

// A source that hangs costs its time and its file.
func TestWriteGoesOnWithoutWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := Part{Name: "hangs", Write: func(ctx context.Context, out io.Writer) error {
			_, _ = io.WriteString(out, "begin")
			<-ctx.Done()
			return ctx.Err()
		}}
		begun := time.Now()
		var out bytes.Buffer
		m, err := Write(t.Context(), &out, []Part{hangs, says("b", "b")}, Manifest{Created: noon},
			Options{Dir: "dir", Part: 100, Total: 100, Patience: 20 * time.Second})
		if err != nil || time.Since(begun) != 20*time.Second {
			t.Fatalf("%v after %s", err, time.Since(begun))
		}
		want := []Entry{{Name: "hangs", Bytes: 5, Error: "it took longer than 20s"}, {Name: "b", Bytes: 1}}
		if !slices.Equal(m.Files, want) {
			t.Errorf("the manifest is %+v", m)
		}
	})
}

func TestWriteEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := Part{Name: "stop", Write: func(context.Context, io.Writer) error {
		cancel(errors.New("stopped"))
		return nil
	}}
	limits := Options{Dir: "dir", Part: 10, Total: 10, Patience: time.Minute}
	_, err := Write(ctx, io.Discard, []Part{stop, says("b", "b")}, Manifest{}, limits)
	if err == nil || err.Error() != "stopped" {
		t.Errorf("a bundle that is broken off: %v", err)
	}
	full := writer(func([]byte) (int, error) { return 0, errors.New("no space") })
	_, err = Write(t.Context(), full, []Part{says("b", "b")}, Manifest{}, limits)
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a disk that is full: %v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
