// Command scale measures how what the crew takes depends on the number of pods, on the scripted container runtime.
package main

import "kubelot.dev/test/harness/program"

func main() { program.Main(newCommand()) }
