package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Document is the manifest of one pod.
type Document struct {
	// Where is the file and, if that has several documents, which of them.
	Where           string
	Namespace, Name string
	// Data is the manifest in YAML.
	Data []byte
}

// Pod is the pod's name as its manifest has it, with the namespace.
func (d Document) Pod() string { return d.Namespace + "/" + d.Name }

// Documents takes a file apart into the pods that it has. The error names everything that a node without an API server
// can't have.
func Documents(where string, text []byte) ([]Document, error) {
	parts, err := split(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: it has no document: write a v1 Pod", where)
	}
	var docs []Document
	var problems []error
	for i, part := range parts {
		at := where
		if len(parts) > 1 {
			at = fmt.Sprintf("%s (document %d)", where, i+1)
		}
		d, err := document(at, part)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", at, err))
			continue
		}
		docs = append(docs, d)
	}
	return docs, errors.Join(problems...)
}

// split returns the YAML documents that hold something, or the one JSON document.
func split(text []byte) ([][]byte, error) {
	if isJSON(text) {
		return [][]byte{text}, nil
	}
	var parts [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not YAML: %w", err)
		}
		if !blank(part) {
			parts = append(parts, part)
		}
	}
}

func isJSON(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text)
}

// blank reports whether there are only comments and white space.
func blank(part []byte) bool {
	for line := range bytes.Lines(part) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// head is what says which object a document is.
type head struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

func headOf(part []byte) (head, error) {
	var h head
	unmarshal := func() error { return yaml.Unmarshal(part, &h) }
	if isJSON(part) { // of which YAML doesn't know every escape
		unmarshal = func() error { return json.Unmarshal(part, &h) }
	}
	if err := unmarshal(); err != nil {
		return h, fmt.Errorf("it is not YAML: %w", err)
	}
	if h.Metadata.Namespace == "" {
		h.Metadata.Namespace = metav1.NamespaceDefault
	}
	return h, nil
}

func document(where string, part []byte) (Document, error) {
	h, err := headOf(part)
	switch {
	case err != nil:
		return Document{}, err
	case h.Kind != "Pod" || h.APIVersion != "v1":
		return Document{}, refusal(h)
	case h.Metadata.Name == "":
		return Document{}, errors.New("metadata.name is missing: give the pod a name")
	}
	if isJSON(part) {
		if part, err = toYAML(part); err != nil {
			return Document{}, err
		}
	}
	return Document{Where: where, Namespace: h.Metadata.Namespace, Name: h.Metadata.Name, Data: part}, nil
}

// toYAML makes it possible to put a comment before a document.
func toYAML(part []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(part))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return yaml.Marshal(v)
}

// controlled are the kinds from which a controller of a cluster makes pods.
var controlled = []string{
	"CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet",
}

// refusal says why an object can't be, and what can be in its place.
func refusal(h head) error {
	const alone = "static pods run without an API server"
	switch {
	case h.Kind == "":
		return errors.New("it has no kind: write a v1 Pod")
	case h.Kind == "ConfigMap" || h.Kind == "Secret":
		return fmt.Errorf("a %s can't be: %s, which keeps them. Put the values into the pod's env, or the files into a "+
			"directory of the node and mount that with hostPath", h.Kind, alone)
	case h.Kind == "PersistentVolumeClaim" || h.Kind == "PersistentVolume":
		return fmt.Errorf("a %s can't be: %s. Mount a directory of the node with hostPath", h.Kind, alone)
	case h.Kind == "ServiceAccount" || h.Kind == "Namespace":
		return fmt.Errorf("a %s can't be and isn't needed: %s; leave the document out", h.Kind, alone)
	case h.Kind == "Service":
		return fmt.Errorf("a Service can't be: %s. Publish a port of the pod with hostPort, or use hostNetwork", alone)
	case slices.Contains(controlled, h.Kind):
		return fmt.Errorf("a %s can't be: no controller makes pods of it here. Write the pod of its template as a v1 Pod",
			h.Kind)
	case h.Kind == "List" || h.Kind == "PodList":
		return fmt.Errorf("a %s can't be: write each pod as a document of its own, with --- between them", h.Kind)
	}
	return fmt.Errorf("%s %s can't be: only a v1 Pod can", h.APIVersion, h.Kind)
}
