package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memory is MemTotal of a meminfo file, in bytes; 0 where there is none. The file of a node begins each line with the
// node's name.
func memory(file string) uint64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(data)) {
		_, rest, ok := strings.Cut(l, "MemTotal:")
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseUint(fields[0], 10, 53); err == nil {
			return kib << 10
		}
	}
	return 0
}

// hugePages is the number of preallocated pages by their size in KiB.
func hugePages(dir string) (map[uint64]uint64, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pages := map[uint64]uint64{}
	for _, e := range list {
		name, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if !ok {
			continue
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(name, "kB"), 10, 53)
		if err != nil {
			continue
		}
		file := filepath.Join(dir, e.Name(), "nr_hugepages")
		text, err := line(file)
		if err != nil {
			return nil, err
		}
		if pages[size], err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return pages, nil
}

// distances are those in a node's file, which lists them in the order of the nodes; nil if it doesn't fit them.
func distances(file string, nodes []Node) map[int]uint64 {
	text, err := line(file)
	fields := strings.Fields(text)
	if err != nil || len(fields) != len(nodes) {
		return nil
	}
	d := map[int]uint64{}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil
		}
		d[nodes[i].ID] = n
	}
	return d
}
