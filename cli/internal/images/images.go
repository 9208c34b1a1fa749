// Package images is the table of the images that the container runtime has.
//
// # Guarantees
//
// Build and Table are pure. Each image is one row, whatever number of names it has.
package images

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// Row is an image.
type Row struct {
	ID string `json:"id"`
	// Names are its tags and, behind them, its digests.
	Names []string `json:"names"`
	Bytes uint64   `json:"bytes"`
	// Pinned images are never collected.
	Pinned bool `json:"pinned,omitempty"`
	// Containers is how many containers were made of it, those that have ended included.
	Containers int `json:"containers"`
}

// Build makes the rows, in the order of the images' names.
func Build(images []*runtimeapi.Image, containers []*runtimeapi.Container) []Row {
	rows := make([]Row, 0, len(images))
	for _, image := range images {
		row := Row{ID: image.GetId(), Bytes: image.GetSize(), Pinned: image.GetPinned()}
		row.Names = slices.Concat(slices.Sorted(slices.Values(image.GetRepoTags())),
			slices.Sorted(slices.Values(image.GetRepoDigests())))
		for _, c := range containers {
			if row.is(c.GetImageId()) || row.is(c.GetImageRef()) {
				row.Containers++
			}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.ID, b.ID)) })
	return rows
}

// is reports whether a container's reference means the image.
func (r Row) is(ref string) bool { return ref != "" && (ref == r.ID || slices.Contains(r.Names, ref)) }

// name is what a person calls the image; empty for one without names.
func (r Row) name() string {
	if len(r.Names) == 0 {
		return ""
	}
	return r.Names[0]
}

// idLength is how much of an image's ID distinguishes it from others, as crictl shows it.
const idLength = 13

// Table draws the rows. Images that no container uses, and that may be collected, are dim.
func Table(rows []Row, p paint.Painter) string {
	if len(rows) == 0 {
		return "The container runtime has no images.\n"
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tID\tSIZE\tCONTAINERS\tPINNED")
	for _, r := range rows {
		id := strings.TrimPrefix(r.ID, "sha256:")
		fmt.Fprintf(w, "%s\t%s\t%.1fMi\t%d\t%s\n", words.OneLine(cmp.Or(r.name(), "<none>")), id[:min(len(id), idLength)],
			float64(r.Bytes)/(1<<20), r.Containers, yes(r.Pinned))
	}
	// A strings.Builder takes every write.
	_ = w.Flush()
	lines := strings.SplitAfter(table.String(), "\n")
	var text strings.Builder
	for i, line := range lines {
		body, newline := strings.CutSuffix(line, "\n")
		switch {
		case i == 0:
			body = p.Paint(paint.Bold, body)
		case i <= len(rows) && rows[i-1].Containers == 0 && !rows[i-1].Pinned:
			body = p.Paint(paint.Dim, body)
		}
		text.WriteString(body)
		if newline {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
