package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
)

// listedImage is an image as kubelot image ls shows it.
type listedImage struct {
	Names  []string `json:"names"`
	Pinned bool     `json:"pinned"`
}

func listedAs(t *testing.T, name string) (listedImage, bool) {
	t.Helper()
	out, stderr, code := kubelot(t, "", "image", "ls", "-o", "json")
	var rows []listedImage
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		t.Fatalf("image ls: exit code %d, %v\n%s", code, err, stderr)
	}
	i := slices.IndexFunc(rows, func(r listedImage) bool { return slices.Contains(r.Names, name) })
	if i < 0 {
		return listedImage{}, false
	}
	return rows[i], true
}

// kept is an error unless gc would keep the image, even under disk pressure, because it is pinned.
func kept(t *testing.T, name string) error {
	out, stderr, code := kubelot(t, "", "gc", "--dry-run", "--all", "--disk-pressure", "-o", "json")
	var plan struct {
		Decisions []struct {
			Action string `json:"action"`
			Object string `json:"object"`
			Reason string `json:"reason"`
		} `json:"decisions"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 {
		return fmt.Errorf("gc: exit code %d, %w\n%s", code, err, stderr)
	}
	for _, d := range plan.Decisions {
		if strings.Contains(d.Object, name) && d.Action == "keep" && strings.Contains(d.Reason, "pinned") {
			return nil
		}
	}
	return fmt.Errorf("gc's plan:\n%s", out)
}

// An archive becomes an image that pods use without a registry, and a pin keeps it.
func TestImportAndPinImages(t *testing.T) {
	if bed.Containerd1(t) {
		t.Skip("containerd 1.6 has not the API by which images are imported")
	}
	bed.NotCRIO(t, "images get into its storage without it, and its configuration pins them")
	t.Parallel()
	ns := bed.Namespace(t)
	const ref = "docker.io/imported/app:1"
	image, err := images.Variant(bed.Busybox, ref, "imported")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "app.tar")
	if err := images.Archive(archive, image); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gzip", "-k", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { kubelot(t, "", "image", "unpin", ref) })
	for _, file := range []string{archive, archive + ".gz"} {
		out, stderr, code := kubelot(t, "", "image", "import", file, "-o", "json")
		var got []struct {
			Name  string `json:"name"`
			ID    string `json:"id"`
			Bytes uint64 `json:"bytes"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got) != 1 || got[0].Name != ref ||
			!strings.HasPrefix(got[0].ID, "sha256:") || got[0].Bytes == 0 {
			t.Fatalf("import: exit code %d, %v\n%s%s", code, err, out, stderr)
		}
	}
	ns.Apply(imagePod("uses", "imported/app:1", "Never"))
	used := ns.Running("uses")

	if row, ok := listedAs(t, ref); !ok || row.Pinned {
		t.Errorf("after the import: %+v, %v", row, ok)
	}
	if out, stderr, code := kubelot(t, "", "image", "pin", ref); code != 0 ||
		!strings.HasPrefix(out, ref+": pinned (sha256:") {
		t.Fatalf("pin: exit code %d\n%s%s", code, out, stderr)
	}
	if row, _ := listedAs(t, ref); !row.Pinned {
		t.Error("the image isn't pinned")
	}
	// Another pull or import of the same image leaves the pin.
	if out, stderr, code := kubelot(t, "", "image", "import", archive); code != 0 ||
		!strings.Contains(out, ref+": imported as sha256:") {
		t.Errorf("import again: exit code %d\n%s%s", code, out, stderr)
	}
	if row, _ := listedAs(t, ref); !row.Pinned {
		t.Error("the import took the pin away")
	}
	ns.Delete("uses", 0)
	ns.Gone(used)
	kit.Eventually(t, "gc to keep the image because it is pinned", func() error { return kept(t, ref) })
	if _, stderr, code := kubelot(t, "", "image", "unpin", ref); code != 0 {
		t.Errorf("unpin: exit code %d\n%s", code, stderr)
	}
	if row, _ := listedAs(t, ref); row.Pinned {
		t.Error("the image is still pinned")
	}
	if _, stderr, code := kubelot(t, "", "image", "pin", "docker.io/no/such:1"); code != 1 ||
		!strings.Contains(stderr, "the node has no image") {
		t.Errorf("pin of nothing: exit code %d\n%s", code, stderr)
	}
	if _, stderr, code := kubelot(t, "no archive", "image", "import", "-"); code != 1 ||
		!strings.Contains(stderr, "import: ") {
		t.Errorf("import of nothing: exit code %d\n%s", code, stderr)
	}
}
