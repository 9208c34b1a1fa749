// Package server is the api daemon: its listeners, the paths it serves and what is behind them. Package state is what
// it knows, auth who may ask, logs and gather what takes more than a line to answer.
package server

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/services/api"
)

// getMayDo is the flag that switches off what kubernetes issue 119640 is about.
const getMayDo = "streams-by-get"

// Daemon is the api daemon.
var Daemon = spec()

func spec() daemon.Spec {
	var mayDo bool
	return daemon.Spec{
		Name:     "api",
		Doc:      "Serves the node's HTTPS API, healthz and the read-only port.",
		Contract: api.Contract,
		// It serves them, and they count its own authentication and authorization.
		LibraryMetrics: true,
		Profiles:       true,
		Processors:     4,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&mayDo, getMayDo, false, "let the verb get suffice for a GET on exec, attach, run and portForward, as "+
				"the kubelet does, where kubelot asks for create")
		},
		Run: func(ctx context.Context, env daemon.Env) error { return run(ctx, env, mayDo) },
	}
}

func run(ctx context.Context, env daemon.Env, mayDo bool) error {
	client, err := cri.Dial(env.Config.RuntimeEndpoint, cri.Options{
		Timeout: env.Config.Kubelet.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
	})
	if err != nil {
		return err
	}
	s, err := New(env, client)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	s.rules.GetMayDo = mayDo
	return errors.Join(s.Run(ctx), client.Close())
}
