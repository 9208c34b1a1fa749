package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/daemon/atomicfile"
)

const (
	// storeFormat is the layout of the store: the streams with their subjects, and the headers of what is kept. It changes
	// when a bus of another release couldn't use the store, or would misread it. v0.1.0 wrote no format; its store has 1.
	storeFormat = 1
	formatFile  = "format"
)

// canGoOn is an error unless the store is new or of this format, and of this agent's time. A new one gets the format's
// number.
func canGoOn(store string) error {
	if _, err := os.Lstat(filepath.Join(store, bus.Disowned)); err == nil {
		return fmt.Errorf("%w: another agent has had the node since it was written", errOtherStore)
	}
	path := filepath.Join(store, formatFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return writeFormat(path)
	case err != nil:
		return fmt.Errorf("%w: read its format: %w", errOtherStore, err)
	}
	format, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || format != storeFormat {
		return fmt.Errorf("%w: %s says format %q, and this kubelot-bus uses %d", errOtherStore, path,
			strings.TrimSpace(string(text)), storeFormat)
	}
	return nil
}

func writeFormat(path string) error {
	// Without it the store still works: it only isn't known to be of this format.
	if err := atomicfile.Write(path, []byte(strconv.Itoa(storeFormat)+"\n"), 0o600); err != nil {
		return fmt.Errorf("start the bus: note the format of its store: %w", err)
	}
	return nil
}

// discard removes what is in the store. The lock stays: it is this bus's.
func (s *Server) discard() error {
	for _, name := range []string{"jetstream", formatFile, bus.Disowned} {
		if err := os.RemoveAll(filepath.Join(s.options.StoreDir, name)); err != nil {
			return fmt.Errorf("start the bus: remove the old store: %w", err)
		}
	}
	return nil
}
