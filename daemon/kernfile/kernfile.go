// Package kernfile reads the small files of numbers in which the kernel tells of itself: those of /proc, /sys and of cgroups.
package kernfile

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Number is that of a file with one number; "max" is math.MaxInt64.
func Number(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %.80q: %w", path, text, err)
	}
	return n, nil
}

// Fields are the numbers behind the names in a file of lines such as "name 1234", in the order of the names. It is an error if one
// is missing.
func Fields(path string, names ...string) ([]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := make([]int64, len(names))
	for i, name := range names {
		found := false
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != name {
				continue
			}
			if values[i], err = strconv.ParseInt(words[1], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %s is %.80q: %w", path, name, words[1], err)
			}
			found = true
			break
		}
		if !found {
			return nil, fmt.Errorf("%s has no %s", path, name)
		}
	}
	return values, nil
}
