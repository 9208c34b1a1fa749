package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Save writes a report as JSON in one go: a reader never sees half of it.
func Save(path string, report any) error {
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return errors.Join(fmt.Errorf("write report: %w", err), ignoreMissing(os.Remove(path+".new")))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
