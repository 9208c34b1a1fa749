package cli

import "errors"

// The exit codes of commands that have more to say than that they failed. Their help texts explain them.
const (
	exitFailed   = 1 // of every command
	exitProblems = 2
	exitDiffers  = 3
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
