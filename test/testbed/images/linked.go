package images

import (
	"fmt"
	"os/exec"
	"strings"

	"kubelot.dev/test/testbed/proc"
)

// linked finds a program of the machine and the shared libraries it needs, the dynamic linker among them.
func linked(name string) (path string, libraries []string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		return "", nil, err
	}
	out, err := proc.Command("ldd", path).CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("ldd %s: %w: %s", path, err, out)
	}
	libraries, err = parseLdd(string(out))
	return path, libraries, err
}

// parseLdd reads lines such as "libc.so.6 => /lib/libc.so.6 (0x7f..)" and "/lib64/ld-linux.so.2 (0x7f..)"; the
// kernel's own linux-vdso.so has no file.
func parseLdd(out string) ([]string, error) {
	var libraries []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), "=> not found"); ok {
			return nil, fmt.Errorf("library %s isn't installed", strings.TrimSpace(name))
		}
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				libraries = append(libraries, field)
			}
		}
	}
	return libraries, nil
}
