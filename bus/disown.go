package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Disowned is a directory in the bus's store. It says that another agent has had the node since the store was written.
// The bus then begins a new one: what the old one says of pods is from before, and daemons would act on it.
const Disowned = "disowned"

// Disown marks the store of a bus below the run directory, such as /run/kubelot, as from before another agent's time.
// A bus that runs goes on with it, and so does one whose store isn't there yet. kubelet.service does the same at its
// start (deploy/systemd/disown.conf).
func Disown(runDir string) error {
	// It isn't a file, since the directory is another user's: a file might be written through a link there.
	err := os.Mkdir(filepath.Join(runDir, "bus", Disowned), 0o700)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark the bus's store as from before another agent: %w", err)
	}
	return nil
}
