package asnode

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fromDebian are the packages that the install page has apt install, and what they need that the machine then lacks.
var fromDebian = []string{"containerd", "runc", "containernetworking-plugins", "iptables"}

// debianRepository makes a repository for apt of these packages in a directory and returns its files. The machine has
// no network but this host.
func debianRepository(ctx context.Context, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a repository: %w", err)
	}
	for _, name := range fromDebian {
		if found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb")); err == nil && len(found) == 1 {
			continue
		}
		cmd := exec.CommandContext(ctx, "apt-get", "download", "-q", name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("download %s: %w: %s", name, err, out)
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, fmt.Errorf("make a repository: %w", err)
	}
	var index strings.Builder
	for _, deb := range debs {
		entry, err := indexEntry(ctx, deb)
		if err != nil {
			return nil, err
		}
		index.WriteString(entry)
	}
	path := filepath.Join(dir, "Packages")
	return append(debs, path), os.WriteFile(path, []byte(index.String()), 0o644)
}

// indexEntry is what a repository's index says of a package.
func indexEntry(ctx context.Context, deb string) (string, error) {
	control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", deb).Output()
	if err != nil {
		return "", fmt.Errorf("read %s: %w", deb, err)
	}
	data, err := os.ReadFile(deb)
	if err != nil {
		return "", fmt.Errorf("read a package: %w", err)
	}
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, filepath.Base(deb), len(data),
		sha256.Sum256(data)), nil
}
