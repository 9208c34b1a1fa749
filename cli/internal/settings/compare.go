package settings

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"kubelot.dev/daemon/config"
)

// Running says how a configuration differs from that of the daemons that run.
type Running struct {
	Daemons []Daemon `json:"daemons"`
	// Error says why the configuration of the daemons isn't known.
	Error string `json:"error,omitempty"`
	// Different are the settings that differ.
	Different []Difference `json:"different,omitempty"`
	// Stale says which daemons run with other values than the files have now, a sentence each. Of daemons that don't say
	// it themselves it says which files were changed after their start. What the daemons run with is taken from the files
	// as they are now, so that it isn't known for these.
	Stale []string `json:"stale,omitempty"`
	// Mixed says which daemons run with other flags than the first one, a sentence each.
	Mixed []string `json:"mixed,omitempty"`
}

// Difference is a setting that differs.
type Difference struct {
	Name    string `json:"name"`
	Here    any    `json:"here"`
	Running any    `json:"running"`
}

// Same reports whether the daemons run with this configuration, as far as that is known.
func (r Running) Same() bool {
	return r.Error == "" && len(r.Different)+len(r.Stale)+len(r.Mixed) == 0
}

// Compare compares the crew's configuration with what it would be if the given flags, each as --name=value, took the
// place of its own.
func Compare(given []string, crew []Daemon) *Running {
	if len(crew) == 0 {
		return nil
	}
	r := &Running{Daemons: slices.Clone(crew)}
	first := crew[0]
	for i, d := range crew {
		r.Daemons[i].Args = hideArgs(d.Args)
		if !slices.Equal(d.Args, first.Args) {
			r.Mixed = append(r.Mixed, fmt.Sprintf("%s runs with other flags than %s: %s", d.Name, first.Name,
				strings.Join(hideArgs(d.Args), " ")))
		}
	}
	line, running, err := load(first.Args)
	if err != nil {
		r.Error = fmt.Sprintf("the daemons would not start again with what they run with: %v", err)
		return r
	}
	if r.Stale, err = stale(line.flags, crew); err != nil {
		r.Error = err.Error()
		return r
	}
	here, wanted, err := load(overlay(first.Args, given))
	if err != nil {
		r.Error = fmt.Sprintf("the daemons would not start with this: %v", err)
		return r
	}
	r.Different = append(fieldDifferences(wanted, running), flagDifferences(here, line)...)
	return r
}

// AskStale asks the daemons whether they run with what the files have now. They know better than the files' times
// where they have reloaded.
func (r *Running) AskStale(ctx context.Context, crew []Daemon, runDir string) {
	if r == nil || r.Error != "" {
		return
	}
	if told, known := pending(ctx, crew, runDir); known {
		r.Stale = told
	}
}

func fieldDifferences(here, running *config.Config) []Difference {
	var found []Difference
	mine, theirs := fieldsOf(here), fieldsOf(running)
	for _, field := range config.Fields {
		name := field.Path
		if !reflect.DeepEqual(mine[name], theirs[name]) {
			found = append(found, Difference{name, hide(name, mine[name]), hide(name, theirs[name])})
		}
	}
	slices.SortFunc(found, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// flagDifferences compares the flags that stand for no field. Those that name the files are left out, because the
// fields in the files are compared.
func flagDifferences(here, running commandLine) []Difference {
	var found []Difference
	for _, flag := range given(here) {
		other := running.set.Lookup(flag.Name)
		named := flag.Name == "config" || flag.Name == "config-dir"
		if named || fieldOf(flag.Usage) != "" || other.Value.String() == flag.Value.String() {
			continue
		}
		name := "--" + flag.Name
		found = append(found, Difference{name, hide(name, flag.Value.String()), hide(name, other.Value.String())})
	}
	return found
}

// stale names the files that are newer than daemons that have read them.
func stale(flags *config.Flags, crew []Daemon) ([]string, error) {
	files, err := sources(flags)
	if err != nil {
		return nil, err
	}
	if flags.ConfigDir != "" { // a file that was removed is no file any more
		info, err := os.Stat(flags.ConfigDir)
		if err != nil {
			return nil, fmt.Errorf("drop-in directory: %w", err)
		}
		files = append(files, source{path: flags.ConfigDir, changed: info.ModTime()})
	}
	var found []string
	for _, file := range files {
		var names []string
		for _, d := range crew {
			if d.Started.Before(file.changed) && !d.Started.IsZero() {
				names = append(names, d.Name)
			}
		}
		if len(names) > 0 {
			found = append(found, fmt.Sprintf("%s was changed at %s, after the start of %s", file.path,
				file.changed.Format(time.RFC3339), strings.Join(names, ", ")))
		}
	}
	return found, nil
}
