// Command scale measures how what the crew takes depends on the number of pods, on the scripted container runtime.
package main

import "kubelot.dev/test/testbed/program"

func main() { program.Main(newCommand()) }
