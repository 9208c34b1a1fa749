// Package swap tells whether the machine swaps.
//
// Reads: /proc/swaps. Writes and owns nothing.
package swap

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

// On reports whether something is swapped to; file is /proc/swaps, which a kernel without swap doesn't have.
func On(file string) (bool, error) {
	swaps, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Contains(bytes.TrimSpace(swaps), []byte("\n")), err // the first line is the heading
}
