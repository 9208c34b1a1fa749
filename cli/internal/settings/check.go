package settings

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"kubelot.dev/daemon/config"
)

// Setting is a field of KubeletConfiguration, or a flag that is none.
type Setting struct {
	// Name is the field's, or the flag's with its dashes.
	Name string `json:"name"`
	// Level is what kubelot does with it: supported, partly or moot.
	Level config.Level `json:"level"`
	// Note completes the level of what isn't supported.
	Note string `json:"note,omitempty"`
	// Value is in effect; Default is what it would be if it weren't set.
	Value   any `json:"value,omitempty"`
	Default any `json:"default,omitempty"`
	// SetIn are the files and flags that set it. The last one counts.
	SetIn []string `json:"setIn,omitempty"`
	// Problem says what doesn't happen that was asked for; empty where all does.
	Problem string `json:"problem,omitempty"`
}

// Report is what is to be said of a configuration.
type Report struct {
	// Flags are the command line that is looked at, and From where it is from.
	Flags []string `json:"flags"`
	From  string   `json:"from"`
	// Error says why no daemon starts with it; the rest is empty then.
	Error string `json:"error,omitempty"`
	// Settings are all fields and flags, in the order of their names, fields first.
	Settings []Setting `json:"settings,omitempty"`
	// Ignored are the things that have no meaning, a sentence each.
	Ignored []string `json:"ignored,omitempty"`
	// Running compares with the daemons that run; nil where none do.
	Running *Running `json:"running,omitempty"`
}

// Problems is the number of settings that don't do all that was asked for, and of things without a meaning.
func (r Report) Problems() int {
	count := len(r.Ignored)
	for _, s := range r.Settings {
		if s.Problem != "" {
			count++
		}
	}
	return count
}

// Check judges a configuration by its command line.
func Check(args []string) Report {
	r := Report{Flags: hideArgs(args)}
	line, resolved, err := load(args)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	files, err := sources(line.flags)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	_, defaults, err := load([]string{"--hostname-override=localhost"})
	if err != nil {
		r.Error = err.Error()
		return r
	}
	values, defaultValues := fieldsOf(resolved), fieldsOf(defaults)
	setIn := origins(files, line)
	for _, field := range config.Fields {
		s := Setting{Name: field.Path, Level: field.Level, Note: field.Note, SetIn: setIn[field.Path]}
		s.Value, s.Default = hide(s.Name, values[s.Name]), defaultValues[s.Name]
		s.Problem = problemOf("configuration field "+s.Name+" ", resolved.Warnings)
		r.Settings = append(r.Settings, s)
	}
	slices.SortFunc(r.Settings, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	r.Settings = append(r.Settings, flagSettings(line, resolved)...)
	for _, warning := range resolved.Warnings {
		if strings.HasPrefix(warning, "configuration file ") {
			r.Ignored = append(r.Ignored, warning)
		}
	}
	return r
}

func load(args []string) (commandLine, *config.Config, error) {
	line, err := parse(args, false)
	if err != nil {
		return line, nil, err
	}
	resolved, err := line.flags.Load()
	return line, resolved, err
}

// fieldsOf are the values of all fields, by name, as a file would have them.
func fieldsOf(c *config.Config) map[string]any {
	values := map[string]any{}
	data, err := json.Marshal(c.Kubelet)
	if err == nil {
		err = json.Unmarshal(data, &values)
	}
	if err != nil {
		// It was decoded from JSON and is plain data.
		panic(err)
	}
	return values
}

// The beginnings of the usage texts of flags by which daemon/config tells what they are.
const (
	isField  = "the configuration field "
	isHollow = "no effect: "
)

// fieldOf is the field of KubeletConfiguration, with dots, that a flag stands for; empty if it stands for none.
func fieldOf(usage string) string {
	field, _ := strings.CutPrefix(usage, isField)
	if field == usage {
		return ""
	}
	return field
}

// given are the flags of the command line that were given, by name.
func given(line commandLine) []*pflag.Flag {
	var flags []*pflag.Flag
	line.set.Visit(func(flag *pflag.Flag) { flags = append(flags, flag) })
	return flags
}

// flagSettings are the flags that stand for no field.
func flagSettings(line commandLine, resolved *config.Config) []Setting {
	var all []Setting
	line.set.VisitAll(func(flag *pflag.Flag) {
		if fieldOf(flag.Usage) != "" {
			return
		}
		s := Setting{Name: "--" + flag.Name, Level: config.Supported, Value: flag.Value.String(), Default: flag.DefValue}
		if note, hollow := strings.CutPrefix(flag.Usage, isHollow); hollow {
			s.Level, s.Note = config.Moot, note
		}
		if flag.Changed {
			s.SetIn = []string{s.Name}
		}
		s.Value = hide(s.Name, s.Value)
		s.Problem = problemOf("flag "+s.Name+" ", resolved.Warnings)
		all = append(all, s)
	})
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// problemOf is what the daemons warn of; about says how such a warning begins.
func problemOf(about string, warnings []string) string {
	for _, warning := range warnings {
		if problem, found := strings.CutPrefix(warning, about); found {
			// Where it is set is said otherwise.
			if cut := strings.Index(problem, ") has "); strings.HasPrefix(problem, "(set in ") && cut > 0 {
				problem = problem[cut+len(") "):]
			}
			return strings.TrimPrefix(problem, "has ")
		}
	}
	return ""
}

// hidden stands for a value that isn't shown.
const hidden = "(hidden)"

// hide is the value of a setting without what authenticates the node to others.
func hide(name string, value any) any {
	switch name {
	case "staticPodURLHeader", "--manifest-url-header", "--storage-driver-password":
		if value == nil || value == "" {
			return value
		}
		return hidden
	case "staticPodURL", "--manifest-url":
		text, _ := value.(string)
		address, err := url.Parse(text)
		if err != nil {
			return hidden
		}
		if address.User != nil {
			address.User = url.User("hidden")
			return address.String()
		}
	}
	return value
}

// hideArgs is hide for flags as they are given: --name=value.
func hideArgs(args []string) []string {
	safe := make([]string, 0, len(args))
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		safe = append(safe, fmt.Sprintf("%s=%v", name, hide(name, value)))
	}
	return safe
}
