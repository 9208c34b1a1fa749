package server

import "errors"

// Answers to callers, in the kubelet's words.
var (
	errNoPod    = errors.New("pod does not exist")
	errOtherPod = errors.New("pod not found")
	errTimeout  = errors.New("cannot parse value of timeout parameter")
	errStreams  = errors.New("you must specify at least 1 of stdin, stdout, stderr")
)
