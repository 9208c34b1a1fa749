package daemon

import (
	"io"
	"testing"

	"github.com/spf13/pflag"

	"kubelot.dev/daemon/config"
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

func TestProfilesAreServedWhereAskedFor(t *testing.T) {
	on, off := true, false
	for _, c := range []struct {
		flag    bool
		handler *bool
		specs   []Spec
		want    bool
	}{
		{false, &on, []Spec{{Name: "gc"}}, false},
		{true, &off, []Spec{{Name: "gc"}}, true},
		{false, &on, []Spec{{Name: "gc"}, {Name: "api", Profiles: true}}, true},
		{false, &off, []Spec{{Name: "api", Profiles: true}}, false},
	} {
		conf := &config.Config{}
		conf.Kubelet.EnableProfilingHandler = c.handler
		if got := (&commandLine{profile: c.flag}).profiles(conf, c.specs...); got != c.want {
			t.Errorf("--profiling=%v enableProfilingHandler=%v %d daemons: profiles are served: %v", c.flag,
				*c.handler, len(c.specs), got)
		}
	}
}
