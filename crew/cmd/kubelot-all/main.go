// Command kubelot-all is every program in one executable: the daemons' processes share its pages.
// The name by which it is called chooses the program; kubelot-all run LIST runs several daemons as one process.
package main

import (
	"fmt"
	"os"

	"kubelot.dev/cli"
	"kubelot.dev/crew"
	"kubelot.dev/crew/recheck"
	"kubelot.dev/daemon"
)

func main() {
	program, args, err := crew.Choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Args = args
	switch program {
	case crew.CLI:
		cli.Main()
	case crew.RunGroup:
		fmt.Fprintln(os.Stderr, crew.MainGroup(crew.Self, crew.Daemons()))
		os.Exit(2)
	case crew.CheckRecording:
		os.Exit(recheck.Run(args[2:], os.Stdout, os.Stderr))
	}
	for _, spec := range crew.Daemons() {
		if spec.Name == program {
			daemon.Main(spec)
		}
	}
}
