package lease

import "errors"

// errNotRegistered says that the Node doesn't exist yet, so that nothing can belong to it.
var errNotRegistered = errors.New("the Node is not registered yet")

func isNotRegistered(err error) bool { return errors.Is(err, errNotRegistered) }
