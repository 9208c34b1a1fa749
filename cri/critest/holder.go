package critest

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	"kubelot.dev/cri"
)

// reservedFor finds the holder's ID in the words of containerd (name "x" is reserved for "ID") and of
// CRI-O (the container name "x" is already in use by ID).
var reservedFor = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`name "?[^ "]+"? is (?:reserved for|already in use by) "?([0-9A-Za-z_.-]+)"?`)
})

// nameHolder reports whether a create failed because its name is taken, and by which sandbox or container if the
// runtime says so.
func nameHolder(err error) (id string, reserved bool) {
	var e *cri.Error
	if !errors.As(err, &e) {
		return "", false
	}
	message := e.Message()
	if match := reservedFor().FindStringSubmatch(message); match != nil {
		return strings.TrimSuffix(match[1], "."), true
	}
	return "", e.Code == codes.AlreadyExists || strings.Contains(message, "name is reserved")
}
