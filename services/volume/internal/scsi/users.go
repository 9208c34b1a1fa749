package scsi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Users are the mount points and devices that use one of these devices or a partition of it. That one of them consists
// of others is no use.
func (p Places) Users(devices []string) ([]string, error) {
	var users []string
	numbers := map[string]bool{}
	for _, device := range devices {
		parts, err := Entries(p.Path("block", device), device)
		if err != nil {
			return nil, err
		}
		for _, dir := range append(parts, p.Path("block", device)) {
			number, err := os.ReadFile(filepath.Join(dir, "dev"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			numbers[strings.TrimSpace(string(number))] = true
			holders, err := Entries(filepath.Join(dir, "holders"), "")
			if err != nil {
				return nil, err
			}
			for _, holder := range holders {
				if name := filepath.Base(holder); !slices.Contains(devices, name) {
					users = append(users, filepath.Join(p.Dev, name))
				}
			}
		}
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !numbers[fmt.Sprintf("%d:%d", m.Major, m.Minor)], false
	})
	for _, m := range mounts {
		users = append(users, m.Mountpoint)
	}
	return users, err
}
