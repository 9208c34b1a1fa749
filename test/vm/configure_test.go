package vm

import (
	"strings"
	"testing"
)

// notQuick leaves a test out of the quick part.
func notQuick(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the quick part")
	}
}

const configFile = "/var/lib/kubelet/config.yaml"

// configure appends to the node's configuration and has all daemons read it, and undoes it at the test's end. Machine
// facts are read again too.
func configure(t *testing.T, config string) {
	t.Helper()
	before := in(t, "cat "+configFile)
	put := func(text string) {
		t.Helper()
		ctx := detached(t)
		if err := node.Machine.Write(ctx, configFile, 0o644, []byte(text+"\n")); err != nil {
			t.Error(err)
		}
		units, err := node.Units(ctx)
		if err != nil {
			t.Error(err)
		}
		if _, err := node.Systemctl(ctx, "restart "+strings.Join(units, " ")); err != nil {
			// An emulated machine may need longer for all of them than systemd gives each, and it starts them again.
			t.Log(err)
		}
		err = node.Eventually(ctx, "all daemons to run", allRun)
		if err == nil {
			err = node.AwaitReady(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { put(before) })
	put(before + "\n" + config)
}

// undo runs a command in the machine at the test's end.
func undo(t *testing.T, command string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := node.Machine.Run(detached(t), command); err != nil {
			t.Error(err)
		}
	})
}
