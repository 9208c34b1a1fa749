package csidriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// SetMaxVolumes has the driver with that state directory say from now on that the node may have so many volumes.
func SetMaxVolumes(state string, most int64) error {
	path := limitFile(state)
	if err := os.WriteFile(path+".new", []byte(strconv.FormatInt(most, 10)), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func limitFile(state string) string { return filepath.Join(state, "max-volumes") }

// maxVolumes is what SetMaxVolumes has set last, or else what the driver has been started with.
func maxVolumes(state string, atStart int64) (int64, error) {
	data, err := os.ReadFile(limitFile(state))
	if errors.Is(err, fs.ErrNotExist) {
		return atStart, nil
	}
	if err != nil {
		return 0, err
	}
	most, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read how many volumes the node may have: %w", err)
	}
	return most, nil
}
