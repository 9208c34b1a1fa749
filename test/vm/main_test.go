package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

var (
	// node is the machine that all tests share.
	node *guest.Guest
	// bed is its cluster as the end-to-end tests see one.
	bed *kit.Bed
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	kit.Patience = guest.Patience
	if testing.Short() {
		// It is made to be quick, and whoever waits for it wants to know soon what fails.
		kit.Patience = 10 * time.Minute
	}
	runtime := guest.Containerd
	if chosen := os.Getenv("VM_RUNTIME"); chosen != "" {
		runtime = guest.Runtime(chosen)
	}
	install, err := guest.From(os.Getenv("VM_INSTALL"), os.Getenv("VM_NEXT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "VM_INSTALL and VM_NEXT name directories with what is installed (make vm-test does it):", err)
		return 1
	}
	node, err = guest.Start(context.Background(), guest.Options{
		Dir: os.Getenv("VM_DIR"), Out: os.Stderr, Runtime: runtime, Install: install,
		Patience: kit.Patience, EndToEnd: os.Getenv("VM_E2E"),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the machine:", err)
		return 1
	}
	defer func() { code = node.End(code) }()
	if bed, err = kit.Over(node.Cluster); err != nil {
		fmt.Fprintln(os.Stderr, "connect to the cluster:", err)
		return 1
	}
	return m.Run()
}
