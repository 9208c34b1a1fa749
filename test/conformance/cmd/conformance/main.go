// Command conformance runs Kubernetes' conformance specs, or its suite of a node alone, under kubelot or the upstream
// kubelet, and compares the two.
package main

import (
	"os"

	"kubelot.dev/test/conformance/node/units"
	"kubelot.dev/test/testbed/program"
)

func main() {
	// The node suite calls this program by the names of systemd's commands.
	if code, is := units.Shim(os.Args); is {
		os.Exit(code)
	}
	program.Main(newCommand())
}
