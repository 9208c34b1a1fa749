package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxWarnings bounds how many unknown fields are named.
const maxWarnings = 10

// document answers with the JSON of the first YAML document that holds something.
func document(data []byte) (doc []byte, warnings []string, err error) {
	if len(data) > MaxBytes {
		return nil, nil, fmt.Errorf("it is larger than %d MiB: a manifest holds one pod", MaxBytes>>20)
	}
	if isJSON(data) {
		return data, nil, nil
	}
	docs, err := documents(data)
	if err != nil {
		return nil, nil, err
	}
	if len(docs) == 0 {
		return nil, nil, errors.New("it is empty: write a v1 Pod or remove it")
	}
	if len(docs) > 1 {
		warnings = append(warnings, fmt.Sprintf("it has %d YAML documents and only the first is used: "+
			"put each pod into a file of its own", len(docs)))
	}
	doc, err = yaml.YAMLToJSONStrict(docs[0])
	if err == nil {
		return doc, warnings, nil
	}
	// Doubled keys are the only thing that the strict form refuses and the kubelet takes: the last one wins.
	strict := err
	if doc, err = yaml.YAMLToJSON(docs[0]); err != nil {
		return nil, nil, fmt.Errorf("it is not YAML: %w", err)
	}
	return doc, append(warnings, strict.Error()), nil
}

// documents are the YAML documents that are more than white space and comments.
func documents(data []byte) ([][]byte, error) {
	var docs [][]byte
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not YAML: %w", err)
		}
		if !blank(doc) {
			docs = append(docs, doc)
		}
	}
}

func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func isJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{"))
}

// decode reads a v1 Pod or, if list is set, a v1 PodList too.
func decode(doc []byte, from Origin, list bool) ([]*corev1.Pod, []string, error) {
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(doc, &kind); err != nil {
		return nil, nil, fmt.Errorf("it is not a Kubernetes object: %w", err)
	}
	if kind.APIVersion != "v1" {
		return nil, nil, fmt.Errorf(`apiVersion is %q, and must be "v1"`, kind.APIVersion)
	}
	switch {
	case kind.Kind == "Pod":
		pod := new(corev1.Pod)
		warnings, err := unmarshal(doc, pod)
		if err != nil {
			return nil, nil, err
		}
		if err := static(pod, from); err != nil {
			return nil, nil, err
		}
		return []*corev1.Pod{pod}, warnings, nil
	case list && kind.Kind == "PodList":
		return decodeList(doc, from)
	}
	return nil, nil, fmt.Errorf(`kind is %q, and must be "Pod"`, kind.Kind)
}

func decodeList(doc []byte, from Origin) ([]*corev1.Pod, []string, error) {
	all := new(corev1.PodList)
	warnings, err := unmarshal(doc, all)
	if err != nil {
		return nil, nil, err
	}
	pods := make([]*corev1.Pod, 0, len(all.Items))
	for i := range all.Items {
		name := all.Items[i].Name
		if err := static(&all.Items[i], from); err != nil {
			return nil, nil, fmt.Errorf("items[%d] (%s): %w", i, name, err)
		}
		pods = append(pods, &all.Items[i])
	}
	return pods, warnings, nil
}

// unmarshal decodes as the API does: names are case-sensitive; unknown and doubled fields are warnings.
func unmarshal(doc []byte, into any) ([]string, error) {
	sloppy, err := json.UnmarshalStrict(doc, into)
	if err != nil {
		return nil, fmt.Errorf("it can't be decoded: %w", err)
	}
	var warnings []string
	for i, e := range sloppy {
		if i == maxWarnings {
			warnings = append(warnings, fmt.Sprintf("and %d more", len(sloppy)-i))
			break
		}
		warnings = append(warnings, e.Error()+" is ignored")
	}
	return warnings, nil
}

// Unvalidated is Pod without validation, for comparisons with Kubernetes' own code.
func Unvalidated(data []byte, from Origin) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	if _, err := unmarshal(data, pod); err != nil {
		return nil, err
	}
	return pod, complete(pod, from)
}
