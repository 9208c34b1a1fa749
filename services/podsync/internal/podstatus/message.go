package podstatus

import (
	"bytes"
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

// TerminationMessage reads what a container left as its termination message: its file, or the end of its log
// if it failed without one and terminationMessagePolicy is FallbackToLogsOnError.
func TerminationMessage(c *topic.Container) string {
	message := readMessage(c.TerminationMessageFile)
	if message != "" || c.ExitCode == 0 || c.TerminationMessagePolicy != string(corev1.TerminationMessageFallbackToLogsOnError) {
		return message
	}
	return logTail(c.LogPath)
}

func readMessage(path string) string {
	if path == "" {
		return ""
	}
	f, err := os.OpenFile(path, os.O_RDONLY|oNoFollowNonblock, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(data), "")
}

// logTail is the last lines of a log in the CRI's format, without their prefixes.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const window = 64 << 10
	if end, err := f.Seek(0, io.SeekEnd); err != nil || end < window {
		_, err = f.Seek(0, io.SeekStart)
		if err != nil {
			return ""
		}
	} else if _, err := f.Seek(-window, io.SeekEnd); err != nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, window))
	if err != nil {
		return ""
	}
	return tailOf(data)
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
