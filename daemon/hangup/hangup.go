// Package hangup tells the two meanings of SIGHUP apart: read the configuration again, and the terminal is gone.
package hangup

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// On calls reload on each SIGHUP until stop is called, which waits for it. A SIGHUP because the terminal on
// stderr is gone calls closed instead.
func On(stderr *os.File, reload, closed func()) (stop func()) {
	fd := int(stderr.Fd())
	attended := term.IsTerminal(fd)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-signals:
			}
			if attended && !term.IsTerminal(fd) {
				closed()
				return
			}
			reload()
		}
	})
	return func() {
		signal.Stop(signals)
		close(ended)
		waiting.Wait()
	}
}
