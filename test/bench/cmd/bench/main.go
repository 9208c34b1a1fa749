// Command bench measures kubelot, the upstream kubelet and the bare CRI calls
// on this machine in one run.
package main

import "kubelot.dev/test/testbed/program"

func main() { program.Main(newCommand()) }
