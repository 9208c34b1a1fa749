package source

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"kubelot.dev/daemon/atomicfile"
)

// lastGood keeps the bytes of each manifest as it could be used last, in files of a directory. With them a restarted
// daemon still has the pod of a manifest that was broken meanwhile. An empty lastGood keeps nothing.
type lastGood string

// file is where the bytes of the manifest at path are.
func (g lastGood) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(g), hex.EncodeToString(sum[:16]))
}

func (g lastGood) read(path string) []byte {
	if g == "" {
		return nil
	}
	data, _ := os.ReadFile(g.file(path)) // there is none, then
	return data
}

func (g lastGood) write(path string, data []byte) error {
	if g == "" {
		return nil
	}
	if err := os.MkdirAll(string(g), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(g.file(path), data, 0o600)
}

func (g lastGood) remove(path string) {
	if g != "" {
		os.Remove(g.file(path)) //nolint:errcheck // the next start tries again
	}
}

// keep removes what it has of manifests other than these.
func (g lastGood) keep(paths []string) {
	entries, _ := os.ReadDir(string(g)) // there is nothing to remove, then
	kept := map[string]bool{}
	for _, p := range paths {
		kept[g.file(p)] = true
	}
	for _, e := range entries {
		if f := filepath.Join(string(g), e.Name()); !kept[f] {
			os.Remove(f) //nolint:errcheck // the next start tries again
		}
	}
}
