package daemon

import (
	"io"
	"testing"

	"github.com/spf13/pflag"
)

// A flag, of the configuration or of the process itself, is refused with an error, or can be given again as it is
// stated in Env.Flags.
func FuzzCommandLine(f *testing.F) {
	line, _ := parsedLine()
	for name := range line.given {
		for _, text := range []string{"json", "4", "-1", "true", "a=b", "10.0.0.5", ""} {
			f.Add(name, text)
		}
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		given, err := parsedLine("--" + name + "=" + text)
		if err != nil {
			return
		}
		stated, known := given.given[name]
		if !known {
			return
		}
		again, err := parsedLine("--" + name + "=" + stated)
		if err != nil || again.given[name] != stated {
			t.Errorf("--%s=%q is stated as %q, and that as %q, %v", name, text, stated, again.given[name], err)
		}
	})
}

func parsedLine(args ...string) (*commandLine, error) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	var line commandLine
	line.register(set)
	err := set.Parse(args)
	line.parsed(set)
	return &line, err
}
