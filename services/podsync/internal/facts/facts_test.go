package facts

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"kubelot.dev/daemon/config"
)

func newFacts(t *testing.T, cfg *config.Config) *Facts {
	t.Helper()
	f, err := New(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAResolverConfigurationThatIsAwayIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	cfg := &config.Config{}
	cfg.Kubelet.ResolverConfig = &path
	write := func() {
		if err := os.WriteFile(path, []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	f := newFacts(t, cfg)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if node, err := f.DNS(); err == nil {
		t.Errorf("facts %+v without the file, want an error", node)
	}
	write()
	if node, err := f.DNS(); err != nil || node.Resolv == nil || len(node.Resolv.Servers) != 1 {
		t.Errorf("facts %+v, %v once the file is back", node, err)
	}
}
