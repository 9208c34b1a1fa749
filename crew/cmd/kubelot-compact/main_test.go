package main

import (
	"testing"

	"github.com/spf13/pflag"

	"kubelot.dev/crew"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/api/apidaemon"
)

// The daemons of a process share its command line, so that no two may have a flag of the same name.
func TestFlagsOfAllDaemons(t *testing.T) {
	fs := pflag.NewFlagSet("all", pflag.ContinueOnError)
	(&config.Flags{}).Register(fs)
	for _, spec := range append(crew.Daemons(), apidaemon.Daemon()) {
		if spec.Flags != nil {
			spec.Flags(fs) // a second flag of a name panics
		}
	}
	for _, name := range []string{"config", "listen", "streams-by-get"} {
		if fs.Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
}
