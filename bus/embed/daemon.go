package embed

import (
	"context"

	"github.com/spf13/pflag"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/sleep"
)

// Daemon is kubelot-bus.
var Daemon = newDaemon()

func newDaemon() daemon.Spec {
	var tcp string
	return daemon.Spec{
		Name:       "bus",
		Doc:        "Carries the messages between the daemons and keeps their last state and a bounded history.",
		WithoutBus: true,
		Processors: 4,
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&tcp, "listen", "",
				"also listen on this loopback address (host:port), for the stock nats CLI; off by default")
		},
		Run: func(ctx context.Context, env daemon.Env) error { return runDaemon(ctx, env, tcp) },
	}
}

func runDaemon(ctx context.Context, env daemon.Env, tcp string) error {
	crew, err := BuiltinCrew()
	if err != nil {
		return err
	}
	o := DefaultOptions(env.Config.RunDir)
	o.Socket, o.Listen, o.Crew, o.Log, o.Metrics = env.Config.BusSocket, tcp, crew, env.Log, env.Metrics
	o.Told = func(trouble error) {
		if trouble != nil {
			env.Health.Set(topic.Degraded, "the store can't be written: "+trouble.Error())
			return
		}
		env.Health.Set(topic.Healthy, "")
		// What daemons that sleep have said may be lost with an earlier bus.
		if err := sleep.WakeAll(env.Config.RunDir); err != nil {
			env.Log.Warn("daemons that sleep can't be woken; they miss what happens", "error", err)
		}
	}
	o.InProcess = env.InProcess.Serve
	loop := make(chan func())
	o.Pulse = loop
	env.Pulse.Of(ctx, loop)
	s, err := New(o)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
