package cli

import "errors"

// The exit codes of commands that have more to say than that they failed. Their help texts explain them, too.
//
//	code | config check                      | doctor
//	-----+-----------------------------------+----------------------------------------------------------
//	0    | all settings do what they say     | all is well
//	1    | no daemon starts, or it failed    | the command failed: a wrong flag or configuration
//	2    | settings have no effect           | machine: it lacks something, or the command has no rights
//	3    | the daemons run with another one  | runtime: the container runtime doesn't answer or isn't ready
//	4    |                                   | bus: the crew doesn't run, or its bus doesn't answer
//	5    |                                   | daemon: a daemon doesn't run, or can't do its job
//	6    |                                   | degraded: a daemon does only a part of its job
const (
	exitFailed   = 1 // of every command
	exitProblems = 2
	exitDiffers  = 3
)

// The exit codes of doctor.
const (
	exitMachine = iota + 2
	exitRuntime
	exitBus
	exitDaemon
	exitDegraded
)

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// exitCode is the exit code of a command that ended with err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if own, ok := errors.AsType[exitError](err); ok {
		return own.code
	}
	return exitFailed
}
