package imagename_test

import (
	_ "crypto/sha512" // digests with it are known where it is linked, which it is in every daemon
	"strings"
	"testing"

	"github.com/distribution/reference"

	"kubelot.dev/cri/imagename"
)

const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// names are such as occur, and such as are wrong in one way each.
var names = []string{
	"", "nginx", "nginx:1.2", "nginx:1.2@sha256:" + sum, "nginx@sha256:" + sum, "library/nginx",
	"docker.io/nginx", "index.docker.io/a", "index.docker.io/a/b",
	"localhost/a", "localhost:5000/a:b", "localhost", "localhost:5000", "[::1]:5000/a/b:c", "[::1]/a",
	"[::1]", "[]/a", "[fe80::1%eth0]/a", "1.2.3.4:80/x",
	"registry.k8s.io/pause:3.10", "a/b/c/d:e", "a_b/c", "a__b", "a___b", "a.b", "a..b", "a.-b", "a---b", "-a",
	"a-", "_a", "a/", "/a", "a//b", ":", "a:", "@", "a@", "a:b:c", "a:b/c:d",
	"NGINX", "Nginx:tag", "Host/a", "Host/A", "host/A", "host.x/A:b", "a.b:80/c-/d", "-.x/a", "a-.x/b",
	"a.x:/b", "a.x:p/b", "é/a", "a:é", "a:-b", "a:.b", "a:_b", "K/a", "a:B.-_9",
	sum, sum + ":a", "a/" + sum, "a@sha256:" + sum[1:], "a@sha256:" + strings.ToUpper(sum),
	"a@md5:" + sum[:32], "a@MD5:" + sum[:32], "a@sha512:" + sum + sum, "a@sha384:" + sum + sum[:32],
	"a@sha256+b:" + sum, "a@a+:" + sum, "a@+a:" + sum, "a@a++b:" + sum, "a@1:" + sum, "a@a.1:" + sum,
	"a@:" + sum, "a@sha256:" + sum[:31], "a@sha256:" + sum + "g", "a@b@sha256:" + sum,
	"a:" + strings.Repeat("t", 128), "a:" + strings.Repeat("t", 129), "h.x/" + strings.Repeat("p", 255),
	"h.x/" + strings.Repeat("p", 256), strings.Repeat("p", 247), strings.Repeat("p", 248),
	"a b", " a", "a\n", "a:b\n", "a\x00", "sha256:" + sum, "docker.io/library/a:b@sha256:" + sum, "docker.io",
	"docker.io/", "x.io:1/a:2@sha512:" + sum,
}

func FuzzNamesMeanWhatTheyMeanElsewhere(f *testing.F) {
	for _, name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := reference.Parse(text)
		named, _ := ref.(reference.Named)
		compare(t, "Parse", text, named, err, imagename.Parse)
		named, err = reference.ParseNormalizedNamed(text)
		compare(t, "ParseQualified", text, named, err, imagename.ParseQualified)
		named, err = reference.ParseDockerRef(text)
		compare(t, "Exact", text, named, err, func(text string) (imagename.Name, error) {
			n, err := imagename.ParseQualified(text)
			if err != nil {
				return n, err
			}
			return n.Exact(), nil
		})
	})
}

func compare(
	t *testing.T, what, text string, want reference.Named, wantErr error, parse func(string) (imagename.Name, error),
) {
	t.Helper()
	got, err := parse(text)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%s(%q): error %v, want %v", what, text, err, wantErr)
	}
	if err != nil {
		return
	}
	tag, digest := "", ""
	if tagged, ok := want.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	if digested, ok := want.(reference.Digested); ok {
		digest = digested.Digest().String()
	}
	if got.Repository != want.Name() || got.Tag != tag || got.Digest != digest || got.String() != want.String() {
		t.Fatalf("%s(%q): got %+v, want %s", what, text, got, want)
	}
}
