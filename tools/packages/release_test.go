package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"kubelot.dev/deploy"
)

// releaseOf makes the archive, the bill of materials and the sums of a release, with the same program under all names,
// and returns their text.
func releaseOf(t *testing.T, program string) (archive, bill, hashes string) {
	t.Helper()
	s := &stage{
		options: &options{out: t.TempDir(), version: "v1.2.3", time: time.Unix(1700000000, 0).UTC()},
		dir:     t.TempDir(), arch: "arm64", executables: map[string]string{},
	}
	for _, name := range []string{"kubelot-all", "kubelot-api", "kubelot-compact", "kubelot-doze", "kubelot-up"} {
		s.executables[name] = program
	}
	if err := errors.Join(s.archive(t.Context()), s.billOfMaterials(), sums(s.out)); err != nil {
		t.Fatal(err)
	}
	for command, into := range map[string]*string{
		"tar -tvzf kubelot-v1.2.3-linux-arm64.tar.gz":       &archive,
		"cat kubelot-v1.2.3-linux-arm64.cdx.json":           &bill,
		"sha256sum --quiet -c SHA256SUMS && cat SHA256SUMS": &hashes,
	} {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = s.out
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		*into = string(out)
	}
	return archive, bill, hashes
}

// A release has an archive for kubelot install, a bill of materials and sums, and the same source gives the same bytes.
func TestRelease(t *testing.T) {
	program, err := exec.LookPath("gofmt") // a small one of Go
	if err != nil {
		t.Skip(err)
	}
	archive, bill, hashes := releaseOf(t, program)
	if _, _, again := releaseOf(t, program); hashes != again || strings.Count(hashes, "\n") != 2 {
		t.Errorf("made twice, the files are\n%s%s", hashes, again)
	}
	want := []string{"/kubelot -> kubelot-all\n", "/kubelot-api\n", "/kubelot-compact\n", "/kubelot-up\n"}
	daemons, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range daemons {
		if name != "api" {
			want = append(want, "/kubelot-"+name+" -> kubelot-all\n")
		}
	}
	for _, text := range want {
		if !strings.Contains(archive, " kubelot-v1.2.3"+text) {
			t.Errorf("the archive lacks %q:\n%s", text, archive)
		}
	}
	hash, err := sum(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`"name": "kubelot-api"`, `"content": "` + hash + `"`, `"pkg:golang/std@`} {
		if !strings.Contains(bill, text) {
			t.Errorf("the bill of materials lacks %q:\n%s", text, bill)
		}
	}
}
