package podstatus

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const (
	// maxMessage bounds a termination message from its file (API reference, terminationMessagePath).
	maxMessage = 4096
	// maxLogMessage and maxLogLines bound one from the container's log.
	maxLogMessage = 2048
	maxLogLines   = 80
)

// logWindow is how much of a log's end is read to find those lines in it.
const logWindow = 64 << 10

// TerminationMessage is the runtime's own message on the container's end, and what the container left: its file, or the
// end of its log if it failed without one and terminationMessagePolicy is FallbackToLogsOnError.
func TerminationMessage(c *topic.Container) string {
	left := strings.ToValidUTF8(string(readEnd(c.TerminationMessageFile, maxMessage)), "")
	if left == "" && c.ExitCode != 0 && c.Reason != "ContainerCannotRun" &&
		c.TerminationMessagePolicy == string(corev1.TerminationMessageFallbackToLogsOnError) {
		left = tailOf(readEnd(c.LogPath, logWindow))
	}
	if c.Message != "" && left != "" {
		return c.Message + ": " + left
	}
	return c.Message + left
}

// readEnd reads the last bytes of a file, at most limit of them; none of what isn't a regular file, as a container may
// have made it a link or a FIFO.
func readEnd(path string, limit int64) []byte {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|oNoFollowNonblock, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data := make([]byte, min(limit, info.Size()))
	n, err := f.ReadAt(data, info.Size()-int64(len(data)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return data[:n]
}

// tailOf takes "<time> <stream> <tag> <text>" lines apart and joins the last of them.
func tailOf(data []byte) string {
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	if len(lines) > maxLogLines {
		lines = lines[len(lines)-maxLogLines:]
	}
	var out strings.Builder
	for _, line := range lines {
		fields := bytes.SplitN(line, []byte(" "), 4)
		if len(fields) < 4 {
			continue
		}
		out.Write(fields[3])
		if !bytes.HasPrefix(fields[2], []byte("P")) {
			out.WriteByte('\n')
		}
	}
	text := out.String()
	if len(text) > maxLogMessage {
		text = text[len(text)-maxLogMessage:]
	}
	return strings.ToValidUTF8(text, "")
}
