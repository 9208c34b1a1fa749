// Command conformance runs Kubernetes' conformance specs under kubelot or the upstream kubelet, and compares the two.
package main

import "kubelot.dev/test/testbed/program"

func main() { program.Main(newCommand()) }
