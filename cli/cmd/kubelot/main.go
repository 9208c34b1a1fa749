// Command kubelot is the command line.
package main

import "kubelot.dev/cli"

func main() { cli.Main() }
