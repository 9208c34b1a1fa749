package logs

import (
	"bytes"
	"fmt"
	"io"
)

const block = 64 << 10

// tailStart is the offset from which on the file has n lines; an unfinished last line counts.
func tailStart(f io.ReadSeeker, n int64) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return size, err
	}
	buffer := make([]byte, block)
	// The newline that ends the file begins no line.
	for end, seen := size, int64(-1); end > 0; {
		begin := max(0, end-block)
		if _, err := f.Seek(begin, io.SeekStart); err != nil {
			return 0, err
		}
		chunk := buffer[:end-begin]
		if _, err := io.ReadFull(f, chunk); err != nil {
			return 0, fmt.Errorf("read back from byte %d: %w", end, err)
		}
		if end == size && chunk[len(chunk)-1] != '\n' {
			seen = 0
		}
		for i := bytes.LastIndexByte(chunk, '\n'); i >= 0; i = bytes.LastIndexByte(chunk[:i], '\n') {
			if seen++; seen == n {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}
