package env

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExpandSubPath(t *testing.T) {
	vars := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("x")}, {Key: "EMPTY"}}
	if got, err := ExpandSubPath("logs/$(A)", vars); err != nil || got != "logs/x" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := ExpandSubPath("$(Z)/$(EMPTY)/$(A)", vars)
	if err == nil || err.Error() != "missing value for EMPTY, Z" {
		t.Errorf("got %v", err)
	}
}

// FuzzEnvFile checks that any file is either refused or read the same way for every key.
func FuzzEnvFile(f *testing.F) {
	for _, seed := range []string{"A='x'\nB='y'", "A='\n'", "#\n\nA= 'x'", "A='x' # y\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, found, err := parseEnvFile(text, "\x00no such key")
		if found && err == nil && !strings.Contains(text, "\x00no such key") {
			t.Errorf("found a key that isn't in %q", text)
		}
		if err == nil {
			if value, ok, err := parseEnvFile(text, "A"); err != nil || (ok && !strings.Contains(text, value)) {
				t.Errorf("%q: %q, %v", text, value, err)
			}
		}
	})
}
