// Command soak has pods come and go on a node under kubelot, and fails on what grows with each of them.
package main

import "kubelot.dev/test/testbed/program"

func main() { program.Main(newCommand()) }
