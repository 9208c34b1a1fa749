// Command testbed runs the test bed for people: containerd, a control plane
// and the programs they need.
package main

import "kubelot.dev/test/testbed/program"

func main() { program.Main(newCommand()) }
