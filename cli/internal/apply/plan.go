package apply

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Action is what is done with a manifest.
type Action string

// The actions.
const (
	created Action = "created"
	changed Action = "changed"
	deleted Action = "deleted"
	// Unchanged manifests are not written.
	Unchanged Action = "unchanged"
)

// Change is one manifest, and what is done with it.
type Change struct {
	Action Action
	// Where is the document that asks for it.
	Where           string
	Namespace, Name string
	// File is the manifest's name in the directory of static pods, Data its new content.
	File string
	Data []byte
}

// Plan decides what to do with the manifests, so that the node's pods become those of the documents. there are the
// manifests of the directory, updates the pods on the bus. The error names every document that can't be used.
func Plan(docs []Document, there []Manifest, updates map[string]topic.Pod) ([]Change, error) {
	var changes []Change
	var problems []error
	seen := map[string]string{}
	for _, d := range docs {
		if other, twice := seen[d.Pod()]; twice {
			problems = append(problems, fmt.Errorf("%s: pod %s is in %s already: each pod has one document", d.Where, d.Pod(),
				other))
			continue
		}
		seen[d.Pod()] = d.Where
		c, err := change(d, there, updates)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: pod %s: %w", d.Where, d.Pod(), err))
			continue
		}
		changes = append(changes, c)
	}
	return changes, errors.Join(problems...)
}

func change(d Document, there []Manifest, updates map[string]topic.Pod) (Change, error) {
	c := Change{
		Action: created, Where: d.Where, Namespace: d.Namespace, Name: d.Name, File: fileOf(d.Namespace, d.Name),
		Data: content(d),
	}
	if len(c.File) > maxName {
		return c, fmt.Errorf("its file would be called %s, which is too long: give the pod a shorter name", c.File)
	}
	taken := false // by a manifest, whose pod is not somebody else's
	for _, m := range there {
		named := m.Namespace == d.Namespace && m.Name == d.Name
		switch {
		case m.File == c.File && m.Own:
			taken = true
			c.Action = changed
			if bytes.Equal(m.Data, c.Data) {
				c.Action = Unchanged
			}
		case m.File == c.File:
			return c, fmt.Errorf("its file %s is there already, and kubelot apply hasn't written it: move it away first",
				m.File)
		case named:
			return c, fmt.Errorf("the manifest %s, which kubelot apply hasn't written, has a pod of that name: edit it there, "+
				"remove it first, or choose another name", m.File)
		}
	}
	if taken {
		return c, nil
	}
	return c, rival(d, updates)
}

// rival is an error if a pod from elsewhere has the name.
func rival(d Document, updates map[string]topic.Pod) error {
	for _, u := range updates {
		if u.Pod == nil || !isOf(u.Pod, d.Namespace, d.Name) {
			continue
		}
		switch u.Source {
		case topic.SourceHTTP:
			return errors.New("a static pod of staticPodURL has that name: choose another one")
		case topic.SourceAPI:
			return fmt.Errorf("a pod of the API server is called %s: choose another name", u.Pod.Name)
		case topic.SourceFile: // it is ending, or it is ours
		}
	}
	return nil
}

// isOf reports whether a pod is the one that the node makes, or would make, of a manifest: it adds the node's name.
func isOf(pod *corev1.Pod, namespace, name string) bool {
	return pod.Namespace == namespace && pod.Name == name+"-"+strings.ToLower(pod.Spec.NodeName)
}

// Of are the node's static pods of a manifest, by their UIDs. One that was changed may be there twice.
func Of(updates map[string]topic.Pod, namespace, name string) []topic.Ref {
	var refs []topic.Ref
	for _, u := range updates {
		if u.Pod != nil && u.Static() && isOf(u.Pod, namespace, name) {
			refs = append(refs, topic.RefOf(u.Pod))
		}
	}
	return refs
}
