package settings

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"kubelot.dev/daemon/config"
)

// source is a file of the configuration.
type source struct {
	path    string
	changed time.Time
	fields  map[string]any
}

// sources are the files of the configuration in the order in which they count: --config, then the drop-ins of
// --config-dir in lexical order. The daemons' decoder has accepted them.
func sources(flags *config.Flags) ([]source, error) {
	var paths []string
	if flags.ConfigFile != "" {
		paths = append(paths, flags.ConfigFile)
	}
	if flags.ConfigDir != "" {
		err := filepath.WalkDir(flags.ConfigDir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("drop-in directory %s: %w", flags.ConfigDir, err)
		}
	}
	var all []source
	for _, path := range paths {
		s, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("configuration file %s: %w", path, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func read(path string) (source, error) {
	s := source{path: path}
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	s.changed = info.ModTime()
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	err = yaml.Unmarshal(data, &s.fields)
	return s, err
}

// origins says for each field where it is set; the last place counts most.
func origins(files []source, line commandLine) map[string][]string {
	set := map[string][]string{}
	for _, file := range files {
		for name, value := range file.fields {
			if value == nil { // takes back what files before it have set
				delete(set, name)
				continue
			}
			set[name] = append(set[name], file.path)
		}
	}
	for _, flag := range given(line) {
		if field := fieldOf(flag.Usage); field != "" {
			name, _, _ := strings.Cut(field, ".")
			set[name] = append(set[name], "--"+flag.Name)
		}
	}
	return set
}
