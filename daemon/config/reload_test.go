package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestChanged(t *testing.T) {
	before := mustLoad(t, header+"maxPods: 50\nevictionHard: {memory.available: 100Mi}\nlogging: {verbosity: 2}\n", nil)
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"maxPods: 50\nevictionHard: {memory.available: 100Mi}\nlogging: {verbosity: 2}\n", ""},
		"one":     {"maxPods: 60\nevictionHard: {memory.available: 100Mi}\nlogging: {verbosity: 2}\n", "maxPods"},
		"some": {
			"evictionHard: {memory.available: 200Mi}\nlogging: {verbosity: 4}\n", "evictionHard logging.verbosity maxPods",
		},
		"format": {
			"maxPods: 50\nevictionHard: {memory.available: 100Mi}\nlogging: {verbosity: 2, format: json}\n", "logging.format",
		},
		"the rest of logging": {
			"maxPods: 50\nevictionHard: {memory.available: 100Mi}\nlogging: {verbosity: 2, flushFrequency: 9s}\n", "logging",
		},
	} {
		if got := strings.Join(Changed(before, mustLoad(t, header+c.text, nil)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// With takes the fields that are named, no others, and leaves both configurations as they are.
func TestWith(t *testing.T) {
	before := mustLoad(t, header+"maxPods: 50\nlogging: {verbosity: 2}\n", nil)
	next := mustLoad(t, header+"maxPods: 60\npodsPerCore: 7\nlogging: {verbosity: 4, format: json}\n", nil)
	for fields, want := range map[string]string{
		"":                              "logging.format logging.verbosity maxPods podsPerCore",
		"maxPods":                       "logging.format logging.verbosity podsPerCore",
		"logging.verbosity podsPerCore": "logging.format maxPods",
		"logging.format noSuchField":    "logging.verbosity maxPods podsPerCore",
		"maxPods podsPerCore logging.format logging.verbosity": "",
	} {
		merged := before.With(next, strings.Fields(fields))
		if got := strings.Join(Changed(merged, next), " "); got != want {
			t.Errorf("with %q: %q differ, want %q", fields, got, want)
		}
	}
	if before.Kubelet.MaxPods != 50 || next.Kubelet.MaxPods != 60 {
		t.Error("With has changed what it copies")
	}
}

// The table names fields that exist, or parts of logging, and daemons that exist.
func TestConcernedNamesWhatExists(t *testing.T) {
	for field, daemons := range concerned() {
		known := slices.ContainsFunc(Fields, func(f Field) bool { return f.Path == field })
		if !known && field != Verbosity && field != loggingFormat {
			t.Errorf("there is no field %s", field)
		}
		for _, daemon := range daemons {
			if _, err := os.Stat(filepath.Join("..", "..", "services", daemon)); err != nil && daemon != everyone {
				t.Errorf("%s: there is no daemon %s", field, daemon)
			}
		}
		if slices.Sort(daemons); len(slices.Compact(slices.Clone(daemons))) != len(daemons) {
			t.Errorf("%s: a daemon is named twice: %v", field, daemons)
		}
	}
	for _, f := range Fields {
		if f.Level == Supported && f.Path != loggingField && len(concerned()[f.Path]) == 0 {
			t.Errorf("%s is supported and concerns no daemon", f.Path)
		}
	}
}

// A daemon that reads a field is named in the table, so that a change of the field names the daemon to be restarted.
func TestWhoReadsAFieldIsConcerned(t *testing.T) {
	names := fieldNames()
	uses := regexp.MustCompile(`(?:\bKubelet|\bk)\.([A-Z]\w*)`)
	root := filepath.Join("..", "..", "services")
	found := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "Kubelet") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		daemon, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		for _, use := range uses.FindAllStringSubmatch(string(text), -1) {
			field, ok := names[use[1]]
			if !ok || field == "staticPodURLHeader" && daemon == "api" { // it shows the field without its values
				continue
			}
			if found++; !Concerns(field, daemon) {
				t.Errorf("%s reads %s, and the table doesn't say so", path, field)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d uses found, %v", found, err)
	}
}

// fieldNames are the JSON names of the fields by their Go names.
func fieldNames() map[string]string {
	names := map[string]string{}
	k := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for i := range k.NumField() {
		name, _, _ := strings.Cut(k.Field(i).Tag.Get("json"), ",")
		if name != "" {
			names[k.Field(i).Name] = name
		}
	}
	return names
}
