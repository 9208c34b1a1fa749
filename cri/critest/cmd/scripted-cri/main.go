// Command scripted-cri is the fake container runtime of package critest as a process of its own: a crew's
// executables talk to it as to any runtime, and thousands of pods cost it what their records do. It starts no
// processes.
package main

import (
	"flag"
	"log"

	"kubelot.dev/cri/critest"
)

func main() {
	socket := flag.String("socket", "", "path of the unix socket to listen on")
	logs := flag.Bool("logs", true, "make each container's log file, as a runtime does")
	flag.Parse()
	if *socket == "" || flag.NArg() > 0 {
		log.Fatal("scripted-cri: want --socket with the path of a unix socket, and no arguments")
	}
	var options []critest.Option
	if *logs {
		options = append(options, critest.WithLogs())
	}
	runtime, err := critest.Listen(*socket, options...)
	if err != nil {
		log.Fatalf("scripted-cri: %v", err)
	}
	runtime.Wait()
}
