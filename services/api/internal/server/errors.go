package server

import (
	"errors"
	"net/http"
)

// Answers to callers, in the kubelet's words.
var (
	errNoPod    = errors.New("pod does not exist")
	errOtherPod = errors.New("pod not found")
	errTimeout  = errors.New("cannot parse value of timeout parameter")
	errStreams  = errors.New("you must specify at least 1 of stdin, stdout, stderr")
	// errUnread is kubelot's own: why nothing can be said of pods.
	errUnread = errors.New("kubelot-api has not read yet which pods there are: try again, and if that doesn't help, " +
		"look whether kubelot-bus runs")
)

// unanswered is the code of an answer to a question about pods that failed.
func unanswered(err error) int {
	if errors.Is(err, errUnread) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
