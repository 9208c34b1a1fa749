// Package payload computes the files of configMap, secret, downwardAPI and projected volumes. It is
// pure: objects in, files out.
//
// # Reads, writes, owns
//
// Nothing.
//
// # Guarantees
//
// Content, modes and error texts are those of the kubelet.
package payload

import (
	"fmt"
	"io/fs"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/atomicwriter"
)

// defaultMode is the API's default for files of these volumes; pods from manifests may come without it.
const defaultMode = 0o644

// source is what a volume's keys are looked up in.
type source struct {
	kind string
	data map[string][]byte
}

// ConfigMap are the files of a ConfigMap; cm is nil where an optional one doesn't exist.
func ConfigMap(items []corev1.KeyToPath, cm *corev1.ConfigMap, mode *int32,
	optional bool,
) (atomicwriter.Payload, error) {
	data := map[string][]byte{}
	if cm != nil {
		for k, v := range cm.Data {
			data[k] = []byte(v)
		}
		maps.Copy(data, cm.BinaryData)
	}
	return source{"configmap references non-existent config key", data}.project(items, mode, optional)
}

// Secret are the files of a Secret; s is nil where an optional one doesn't exist.
func Secret(items []corev1.KeyToPath, s *corev1.Secret, mode *int32, optional bool) (atomicwriter.Payload, error) {
	var data map[string][]byte
	if s != nil {
		data = s.Data
	}
	return source{"references non-existent secret key", data}.project(items, mode, optional)
}

func (s source) project(items []corev1.KeyToPath, mode *int32, optional bool) (atomicwriter.Payload, error) {
	files := atomicwriter.Payload{}
	if len(items) == 0 {
		for key, data := range s.data {
			files[key] = atomicwriter.File{Data: data, Mode: modeOf(nil, mode)}
		}
		return files, nil
	}
	for _, item := range items {
		data, ok := s.data[item.Key]
		switch {
		case ok:
			files[item.Path] = atomicwriter.File{Data: data, Mode: modeOf(item.Mode, mode)}
		case !optional:
			return nil, fmt.Errorf("%s: %s", s.kind, item.Key)
		}
	}
	return files, nil
}

// modeOf is an item's mode, or the volume's default, or the API's.
func modeOf(item, volume *int32) fs.FileMode {
	switch {
	case item != nil:
		return fs.FileMode(*item).Perm()
	case volume != nil:
		return fs.FileMode(*volume).Perm()
	}
	return defaultMode
}
