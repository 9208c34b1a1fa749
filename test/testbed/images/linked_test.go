package images

import (
	"slices"
	"strings"
	"testing"
)

func TestParseLdd(t *testing.T) {
	const out = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibbsd.so.0 => /lib/x/libbsd.so.0 " +
		"(0x00007f01)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n"
	got, err := parseLdd(out)
	if want := []string{"/lib/x/libbsd.so.0", "/lib64/ld-linux-x86-64.so.2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("parseLdd = %v, %v; want %v", got, err, want)
	}
	if got, err = parseLdd("\tstatically linked\n"); err != nil || len(got) != 0 {
		t.Errorf("a static program: %v, %v; want no libraries", got, err)
	}
	if _, err = parseLdd("\tlibz.so.1 => not found\n"); err == nil || !strings.Contains(err.Error(), "libz.so.1") {
		t.Errorf("a missing library: %v, want an error that names it", err)
	}
}
