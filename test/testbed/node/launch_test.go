package node

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/tools"
)

func TestTheAgentGetsTheExtraEnvironment(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	healthy := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = healthy.Serve(listener) }()
	defer healthy.Close()
	dir := t.TempDir()
	program := "#!/bin/sh\necho \"$EXTRA\" >extra.new\nmv extra.new extra\nexec sleep 60\n"
	if err := os.WriteFile(filepath.Join(dir, "kubelot"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	n := &Node{
		HealthPort: listener.Addr().(*net.TCPAddr).Port,
		cluster:    &cluster.Cluster{Bed: &bed.Bed{Dir: dir}, Tools: &tools.Box{Bin: dir}},
		opts:       Options{Agent: Kubelot, Standalone: true, ExtraEnv: []string{"EXTRA=more"}},
	}
	if err := n.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer n.Stop()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(n.cluster.Bed.Logs(), "extra"))
		if err == nil {
			if string(text) != "more\n" {
				t.Errorf("the program's environment has %q", text)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
