// Command conformance runs Kubernetes' conformance specs under kubelot or the upstream kubelet, and compares the two.
package main

import "kubelot.dev/test/harness/program"

func main() { program.Main(newCommand()) }
