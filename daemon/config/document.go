package config

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
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
}

// readLayer reads one file strictly: unknown, duplicate and wrongly typed fields are errors that
// name the file and the field.
func readLayer(path string) (layer, error) {
	data, err := readBounded(path)
	if err != nil {
		return layer{}, err
	}
	fields, err := decodeDocument(data)
	if err != nil {
		return layer{}, fmt.Errorf("configuration file %s: %w", path, err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return layer{}, fmt.Errorf("configuration file %s: %w", path, err)
	}
	anchorPaths(fields, filepath.Dir(absolute))
	return layer{source: path, fields: fields}, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("configuration file %s is larger than %d bytes: is it a KubeletConfiguration?", path, maxFileSize)
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
		l, err := readLayer(path)
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
// a valid KubeletConfiguration.
func decodeDocument(data []byte) (map[string]any, error) {
	if countDocuments(data) > 1 {
		return nil, errors.New("holds several YAML documents, but only one KubeletConfiguration is read: split the file")
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("is neither valid YAML nor JSON: %w", err)
	}
	fields := map[string]any{}
	if err := strictUnmarshal(raw, &fields); err != nil {
		return nil, err
	}
	typed, err := decodeFields(withoutNulls(fields))
	if err != nil {
		return nil, err
	}
	if typed.APIVersion != configAPIVersion || typed.Kind != configKind {
		return nil, fmt.Errorf("has apiVersion %q and kind %q, want %q and %q", typed.APIVersion, typed.Kind, configAPIVersion, configKind)
	}
	return fields, nil
}

// decodeFields is the typed form of the fields.
func decodeFields(fields map[string]any) (kubeletv1beta1.KubeletConfiguration, error) {
	var typed kubeletv1beta1.KubeletConfiguration
	raw, err := stdjson.Marshal(fields)
	if err != nil {
		return typed, err
	}
	return typed, strictUnmarshal(raw, &typed)
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

// strictUnmarshal decodes JSON case-sensitively and turns unknown and duplicate fields into errors.
func strictUnmarshal(raw []byte, into any) error {
	strict, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
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
}

// merge applies the layers in order as JSON merge patches (RFC 7386): objects are merged, lists and
// plain values replaced, null removes.
func merge(layers []layer) merged {
	m := merged{fields: map[string]any{}, origin: map[string]string{}}
	for _, l := range layers {
		m.apply(m.fields, l.fields, "", l.source)
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
	typed, err := decodeFields(m.fields)
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
