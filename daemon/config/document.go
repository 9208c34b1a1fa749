package config

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	configAPIVersion = "kubelet.config.k8s.io/v1beta1"
	configKind       = "KubeletConfiguration"
	// maxFileSize bounds a configuration file; real ones have a few kilobytes.
	maxFileSize = 1 << 20
)

// pathFields hold file paths that are relative to the file that states them, as with the kubelet.
var pathFields = []string{
	"staticPodPath", "podLogsDir", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf",
	"volumePluginDir", "authentication.x509.clientCAFile",
}

// layer is one source of configuration: a file, a drop-in, or the command line.
type layer struct {
	source string
	fields map[string]any
	// ignored says what of it has no meaning: fields that are unknown, or are there twice in --config.
	ignored []string
	// whole are its objects that aren't merged with those of earlier layers, but take their place.
	whole []string
}

// readLayer reads the file of --config. A field of a wrong type is an error that names the file and the field. Unknown
// and repeated fields are ignored with a warning. This is the kubelet's rule for v1beta1, so that a node starts with a
// file for another release.
func readLayer(path string) (layer, error) {
	l, twice, err := readFile(path)
	for _, problem := range twice {
		l.ignored = append(l.ignored, ignoring(path, problem))
	}
	return l, err
}

// readDropIn reads one drop-in. It differs from the file of --config in that repeated fields are errors.
func readDropIn(path string) (layer, error) {
	l, twice, err := readFile(path)
	if err == nil && len(twice) > 0 {
		err = fmt.Errorf("configuration file %s: %w", path, errors.Join(twice...))
	}
	return l, err
}

func ignoring(path string, problem error) string {
	return fmt.Sprintf("configuration file %s: %v: it is ignored", path, problem)
}

// readFile reads a file. twice are the fields that it repeats.
func readFile(path string) (l layer, twice []error, err error) {
	data, err := readBounded(path)
	if err != nil {
		return layer{}, nil, err
	}
	fields, twice, unknown, err := decodeDocument(data)
	if err != nil {
		return layer{}, nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return layer{}, nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	anchorPaths(fields, filepath.Dir(absolute))
	l = layer{source: path, fields: fields}
	for _, problem := range unknown {
		l.ignored = append(l.ignored, ignoring(path, problem))
	}
	return l, twice, nil
}

func unreadable(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("configuration file: %w: %s", err, HowToRead(path))
	}
	return fmt.Errorf("configuration file: %w", err)
}

// HowToRead says what to do about a file that not all daemons can read: most of them aren't root.
func HowToRead(path string) string {
	return fmt.Sprintf("kubelot's daemons read it as members of the group kubelot: "+
		"chgrp kubelot %[1]s && chmod 0640 %[1]s", path)
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("configuration file %s is larger than %d bytes: is it a KubeletConfiguration?", path,
			maxFileSize)
	}
	return data, nil
}

// readDropIns reads every *.conf file below dir in lexical order (KEP-3983).
func readDropIns(dir string) ([]layer, error) {
	var layers []layer
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() || filepath.Ext(path) != ".conf":
			return nil
		}
		l, err := readDropIn(path)
		if err != nil {
			return err
		}
		layers = append(layers, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("drop-in directory %s: %w", dir, err)
	}
	return layers, nil
}

// decodeDocument turns one YAML or JSON document into the fields it sets, after it was proven to be
// a valid KubeletConfiguration. twice and unknown name what is there twice, and what is unknown.
func decodeDocument(data []byte) (fields map[string]any, twice, unknown []error, err error) {
	if countDocuments(data) > 1 {
		return nil, nil, nil, errors.New("holds several YAML documents, but only one KubeletConfiguration is read: " +
			"split the file")
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		twice = append(twice, err)
		if raw, err = yaml.YAMLToJSON(data); err != nil {
			return nil, nil, nil, fmt.Errorf("is neither valid YAML nor JSON: %w", err)
		}
	}
	more, err := json.UnmarshalStrict(raw, &fields)
	if err != nil {
		return nil, nil, nil, err
	}
	typed, unknown, err := decodeFields(withoutNulls(fields))
	if err != nil {
		return nil, nil, nil, err
	}
	if typed.APIVersion != configAPIVersion || typed.Kind != configKind {
		return nil, nil, nil, fmt.Errorf("has apiVersion %q and kind %q, want %q and %q", typed.APIVersion, typed.Kind,
			configAPIVersion, configKind)
	}
	return fields, append(twice, more...), unknown, nil
}

// decodeFields returns the typed form of the fields. Names are case-sensitive. unknown lists the fields that the type
// doesn't have.
func decodeFields(fields map[string]any) (typed kubeletv1beta1.KubeletConfiguration, unknown []error, err error) {
	raw, err := stdjson.Marshal(fields)
	if err != nil {
		return typed, nil, err
	}
	unknown, err = json.UnmarshalStrict(raw, &typed)
	if err != nil {
		return typed, nil, namingField(fields, err)
	}
	return typed, unknown, nil
}

// namingField adds the name of the field to an error of the decoder, which leaves it out for durations.
func namingField(fields map[string]any, err error) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw, encodeErr := stdjson.Marshal(map[string]any{name: fields[name]})
		var alone kubeletv1beta1.KubeletConfiguration
		if _, fieldErr := json.UnmarshalStrict(raw, &alone); encodeErr == nil && fieldErr != nil {
			return fmt.Errorf("field %s: %w", name, fieldErr)
		}
	}
	return err
}

// withoutNulls is a copy of the fields without those that are null: null takes back what an earlier
// layer set, and not every field's type can be decoded from it.
func withoutNulls(fields map[string]any) map[string]any {
	kept := make(map[string]any, len(fields))
	for key, value := range fields {
		if object, ok := value.(map[string]any); ok {
			value = withoutNulls(object)
		}
		if value != nil {
			kept[key] = value
		}
	}
	return kept
}

func countDocuments(data []byte) int {
	documents, content := 0, false
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line), " \t\r\n")
		switch {
		case text == "---" || strings.HasPrefix(text, "--- "):
			content = false
		case text != "" && !strings.HasPrefix(text, "#") && !content:
			content = true
			documents++
		}
	}
	return documents
}

// anchorPaths makes the relative file paths among the fields absolute.
func anchorPaths(fields map[string]any, dir string) {
	for _, path := range pathFields {
		if value, ok := lookup(fields, path).(string); ok && value != "" && !filepath.IsAbs(value) {
			put(fields, path, filepath.Join(dir, value))
		}
	}
}

// merged is what all layers say together.
type merged struct {
	fields map[string]any
	// origin names the layer that set a field last, by the field's dotted path.
	origin map[string]string
	// ignored is what the layers say that has no meaning.
	ignored []string
}

// merge applies the layers in order as JSON merge patches (RFC 7386): objects are merged unless the layer says
// otherwise, lists and plain values replaced, null removes.
func merge(layers []layer) merged {
	m := merged{fields: map[string]any{}, origin: map[string]string{}}
	for _, l := range layers {
		for _, field := range l.whole {
			delete(m.fields, field)
		}
		m.apply(m.fields, l.fields, "", l.source)
		m.ignored = append(m.ignored, l.ignored...)
	}
	return m
}

func (m merged) apply(into, patch map[string]any, prefix, source string) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		value, path := patch[key], prefix+key
		if value == nil {
			delete(into, key)
			continue
		}
		m.origin[path] = source
		object, ok := value.(map[string]any)
		if !ok {
			into[key] = value
			continue
		}
		target, ok := into[key].(map[string]any)
		if !ok {
			target = map[string]any{}
			into[key] = target
		}
		m.apply(target, object, path+".", source)
	}
}

// decode is the typed form of the merged fields.
func (m merged) decode() (kubeletv1beta1.KubeletConfiguration, error) {
	typed, _, err := decodeFields(m.fields) // what is unknown has been told
	if err != nil {
		return typed, fmt.Errorf("merge the configuration: %w", err)
	}
	return typed, nil
}

// where says in brackets which layer set the field; empty for a default.
func (m merged) where(path string) string {
	for path != "" {
		if source := m.origin[path]; source != "" {
			return " (set in " + source + ")"
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	return ""
}

// lookup is the value at a dotted path, or nil.
func lookup(fields map[string]any, path string) any {
	head, rest, nested := strings.Cut(path, ".")
	value := fields[head]
	if !nested {
		return value
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	return lookup(object, rest)
}

// put sets the value at a dotted path and makes the objects on the way.
func put(fields map[string]any, path string, value any) {
	head, rest, nested := strings.Cut(path, ".")
	if !nested {
		fields[head] = value
		return
	}
	object, ok := fields[head].(map[string]any)
	if !ok {
		object = map[string]any{}
		fields[head] = object
	}
	put(object, rest, value)
}
