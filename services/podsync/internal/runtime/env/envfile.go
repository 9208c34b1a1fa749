package env

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// maxEnvFile bounds what is read of a file that a container wrote, in bytes.
const maxEnvFile = 1 << 20

// fileKey gives the value of a fileKeyRef; not found means that it's optional and file or key is missing.
//
// Source: KEP-3721, FileKeySelector.
func fileKey(ref *corev1.FileKeySelector, in Input) (value string, found bool, err error) {
	dir, ok := in.VolumePaths[ref.VolumeName]
	if !ok || dir == "" {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	text, err := readBelow(dir, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		// The path on the host is none of the user's business.
		return "", false, fmt.Errorf("couldn't read env file %q in volume %q: %w", ref.Path, ref.VolumeName, cause(err))
	}
	value, found, err = parseEnvFile(text, ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q in volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !found && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, found, nil
}

// readBelow reads a file that a container may have put a symlink or a FIFO in the place of: it follows no
// link out of the volume and never blocks.
func readBelow(dir, path string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxEnvFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxEnvFile {
		return "", fmt.Errorf("larger than %d bytes", maxEnvFile)
	}
	return string(text), nil
}

func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// parseEnvFile finds a key in lines of NAME='value'. Values stand in single quotes, may span lines, and are
// taken literally; blank lines and comments are skipped; a value apart from the equals sign is empty, as in a shell.
func parseEnvFile(text, key string) (value string, found bool, err error) {
	for line := 1; text != ""; {
		current, rest, _ := strings.Cut(text, "\n")
		current = strings.TrimLeft(strings.TrimSuffix(current, "\r"), " \t")
		if current == "" || current[0] == '#' {
			text, line = rest, line+1
			continue
		}
		name, quoted, err := splitAssignment(current)
		if err != nil {
			return "", false, fmt.Errorf("line %d: %w", line, err)
		}
		if !quoted {
			if name == key {
				return "", true, nil
			}
			text, line = rest, line+1
			continue
		}
		_, afterQuote, _ := strings.Cut(text, "='")
		body, tail, closed := strings.Cut(afterQuote, "'")
		if !closed {
			return "", false, fmt.Errorf("line %d: unclosed single quote", line)
		}
		line += strings.Count(body, "\n") + 1
		trailer, next, _ := strings.Cut(tail, "\n")
		if trailer = strings.TrimSpace(trailer); trailer != "" && trailer[0] != '#' {
			return "", false, fmt.Errorf("line %d: unexpected content after closing quote", line-1)
		}
		if name == key {
			return body, true, nil
		}
		text = next
	}
	return "", false, nil
}

// splitAssignment checks what stands before a value; quoted is false for a value apart from the equals sign.
func splitAssignment(line string) (name string, quoted bool, err error) {
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", false, errors.New("missing '='")
	case name == "":
		return "", false, errors.New("empty variable name")
	case strings.TrimRight(name, " \t") != name:
		return "", false, errors.New("whitespace before '=' is not allowed")
	case strings.TrimLeft(value, " \t") != value:
		return name, false, nil
	case !strings.HasPrefix(value, "'"):
		return "", false, errors.New("value must be enclosed in single quotes")
	}
	return name, true, nil
}
