package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"kubelot.dev/cli/internal/words"
)

// Part is one file of the archive.
type Part struct {
	Name string
	// Write writes the content. What it has written before an error is kept.
	Write func(ctx context.Context, out io.Writer) error
	// Keep says what is kept of a content that is too large.
	Keep Keep
}

// Options say what an archive is like.
type Options struct {
	// Dir is the directory that all files are in.
	Dir string
	// Part is the most bytes of a file, Total those of all files, both before compression.
	Part, Total int
	// Patience is how long one file may take.
	Patience time.Duration
}

// Entry says what became of a part.
type Entry struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// CutOff is true where the content was larger than the limit, so that not all of it is there.
	CutOff bool `json:"cutOff,omitempty"`
	// Error says why it isn't there, or isn't whole.
	Error string `json:"error,omitempty"`
}

// Manifest is the content of manifest.json.
type Manifest struct {
	Created time.Time `json:"created"`
	Version string    `json:"kubelotVersion"`
	Files   []Entry   `json:"files"`
}

// manifestName is the last file of each archive.
const manifestName = "manifest.json"

// Write packs the parts into a compressed tar archive. The error is of the writing alone.
func Write(ctx context.Context, out io.Writer, parts []Part, m Manifest, o Options) (Manifest, error) {
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	left := o.Total
	for _, part := range parts {
		if err := ctx.Err(); err != nil {
			return m, context.Cause(ctx)
		}
		data, entry := collect(ctx, part, min(left, o.Part), o.Patience)
		left -= len(data)
		m.Files = append(m.Files, entry)
		if len(data) == 0 {
			continue
		}
		if err := add(archive, path.Join(o.Dir, part.Name), data, m.Created); err != nil {
			return m, err
		}
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, fmt.Errorf("write %s: %w", manifestName, err)
	}
	if err := add(archive, path.Join(o.Dir, manifestName), append(data, '\n'), m.Created); err != nil {
		return m, err
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	return m, nil
}

func add(archive *tar.Writer, name string, data []byte, at time.Time) error {
	err := archive.WriteHeader(&tar.Header{
		Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: at, Typeflag: tar.TypeReg,
	})
	if err == nil {
		_, err = archive.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// collect gets the content of a part.
func collect(ctx context.Context, part Part, limit int, patience time.Duration) ([]byte, Entry) {
	entry := Entry{Name: part.Name}
	if limit <= 0 {
		entry.Error = "left out: the archive is as large as it may be"
		return nil, entry
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %s", patience))
	defer cancel()
	content := part.Keep.keeper(limit)
	err := part.Write(ctx, content)
	data, cut := content.kept()
	entry.Bytes, entry.CutOff = len(data), cut
	switch {
	case errors.Is(err, errFull) || cut && part.Keep == keepBegin: // the error is that of the limit, or follows from it
	case err != nil && ctx.Err() != nil:
		entry.Error = context.Cause(ctx).Error()
	case err != nil:
		entry.Error = err.Error()
	}
	return data, entry
}

// Text says for a terminal what is in the archive and what isn't. size is the archive's, in bytes.
func Text(m Manifest, file string, size int64) string {
	var out bytes.Buffer
	files, missing, cut := 1, "", ""
	for _, e := range m.Files {
		if e.Bytes > 0 {
			files++
		}
		if e.Error != "" {
			missing += fmt.Sprintf("  %s: %s\n", e.Name, words.OneLine(e.Error))
		}
		if e.CutOff {
			cut += fmt.Sprintf("  %s: %d KiB are there\n", e.Name, e.Bytes>>10)
		}
	}
	fmt.Fprintf(&out, "%s: %s, %d KiB\n", file, words.Plural(files, "file"), (size+1023)>>10)
	if missing != "" {
		out.WriteString("not collected, or not whole:\n" + missing)
	}
	if cut != "" {
		out.WriteString("larger than a file may be:\n" + cut)
	}
	out.WriteString("Logs are as the programs wrote them: read them before you send the file to others.\n")
	return out.String()
}
