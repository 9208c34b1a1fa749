package tools

import (
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &progress{name: "containerd", out: &out, told: time.Now()}
	const wrong = "# example.com/a/b\na.go:1:2: undefined: c\n"
	for _, text := range []string{"go: downloading example.com/a v1.0.0\nexample.", "com/a/b\ninternal/cpu\n", wrong} {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if p.modules != 1 || p.packages != 2 || p.unexpected() != wrong {
		t.Errorf("%d modules, %d packages, and %q", p.modules, p.packages, p.unexpected())
	}
	if out.Len() > 0 {
		t.Errorf("a short build tells %q", out.String())
	}
	p.told = time.Time{}
	_, _ = p.Write([]byte("fmt\n"))
	if want := "tools: containerd: 1 modules fetched, 3 packages compiled\n"; out.String() != want {
		t.Errorf("a long build tells %q, want %q", out.String(), want)
	}
}
