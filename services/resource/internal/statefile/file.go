package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/services/resource/internal/statefile/internal/checksum"
)

// The files' names: of the first two in the root directory, of the last one in that of the device plugins' sockets.
const (
	CPUName     = "cpu_manager_state"
	MemoryName  = "memory_manager_state"
	DevicesName = "kubelet_internal_checkpoint"
)

// mode is the kubelet's.
const mode = 0o600

// maxFile bounds what is read. It is far above all that is written: a plugin may list 4 MiB of device IDs, each of
// which may be a container's, too.
const maxFile = 256 << 20

// errUnusable is of a file that is there and can't be used.
var errUnusable = errors.New("the state file can't be used")

// unusable is an errUnusable with what is wrong. The text is cut, since it may have parts of the file.
func unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %.400s", errUnusable, fmt.Sprintf(format, args...))
}

// read reads a file and decodes it.
func read[T any](path string, decode func([]byte) (T, error)) (T, error) {
	var content T
	data, err := bytes(path)
	if err == nil {
		content, err = decode(data)
	}
	if err != nil {
		return content, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}

// bytes is the file's content. It doesn't wait for a writer where a pipe is in the file's place.
func bytes(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, unusable("it isn't a regular file but %v", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, unusable("it has more than %d bytes", maxFile)
	}
	return data, nil
}

func write(path string, data []byte, err error) error {
	if err == nil {
		err = atomicfile.WriteDurably(path, data, mode)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// parse reads JSON into a content that has what the kubelet's has before it reads.
func parse(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return unusable("%v at byte %d", err, syntax.Offset)
	}
	if err != nil {
		return unusable("%v", err)
	}
	return nil
}

// verify compares the sum that a file has with those that its content may have.
func verify(found checksum.Checksum, want ...checksum.Checksum) error {
	for _, w := range want {
		if found == w {
			return nil
		}
	}
	return unusable("its checksum is %d, but %d is its content's", found, want[0])
}

// reread is the content as a reader of the file gets it. The sum is of this, since it tells an empty list from none,
// and JSON doesn't have every text.
func reread[T any](content, into *T) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
