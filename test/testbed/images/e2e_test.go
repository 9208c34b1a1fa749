package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fakePrograms stand for those that images are made of.
func fakePrograms(t *testing.T) E2E {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"agnhost": "agnhost", "nnp": "nnp", "pause": "pause", "localhost.crt": "c", "localhost.key": "k",
		"busybox": "#!/bin/sh\nprintf 'ash\\nbusybox\\nls\\nnc\\nsh\\n'\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return E2E{
		Busybox: filepath.Join(dir, "busybox"), Agnhost: filepath.Join(dir, "agnhost"), Nnp: filepath.Join(dir, "nnp"),
		Pause: filepath.Join(dir, "pause"), Certs: dir,
	}
}

// headers are those of all files in the layer.
func headers(t *testing.T, l *layer) map[string]*tar.Header {
	t.Helper()
	files, err := l.finish()
	if err != nil {
		t.Fatal(err)
	}
	content, err := files.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	all := map[string]*tar.Header{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[header.Name] != nil {
			t.Errorf("%s is there twice", header.Name)
		}
		all[header.Name] = header
	}
}

func TestNonewprivsKeepsTheSetUserIDBit(t *testing.T) {
	nnp := headers(t, nnpLayer(fakePrograms(t)))["usr/local/bin/nnp"]
	if nnp == nil || nnp.Mode != 0o4755 || nnp.Uid != 0 {
		t.Errorf("nnp is %+v, want root's with mode 4755", nnp)
	}
}

// Some specs need what only bash does, others the words of busybox.
func TestShells(t *testing.T) {
	all := headers(t, shellLayer(fakePrograms(t)))
	for name, want := range map[string]string{"usr/local/bin/sh": "../../bin/bash", "bin/sh": "busybox"} {
		if sh := all[name]; sh == nil || sh.Linkname != want {
			t.Errorf("%s is %+v, want a link to %s", name, sh, want)
		}
	}
	if all["usr/bin/bash"] == nil {
		t.Error("there is no bash")
	}
}

func TestE2EImagesAreAllThere(t *testing.T) {
	for _, program := range []string{"curl", "dig", "nc.openbsd", "ipcs"} {
		if _, _, err := linked(program); err != nil {
			t.Skipf("the packages of E2EPackages aren't all installed: %v", err)
		}
	}
	all, err := E2EImages(fakePrograms(t))
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, img := range all {
		refs = append(refs, img.Ref)
	}
	for _, want := range []string{PauseRef, AgnhostRef, e2eRegistry + "busybox:1.37.0-1", e2eRegistry + "kitten:1.8"} {
		if !slices.Contains(refs, want) {
			t.Errorf("no %s among %v", want, refs)
		}
	}
}
