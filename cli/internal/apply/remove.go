package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/bus/topic"
)

// Target is a pod to be deleted.
type Target struct {
	// Where is the document that names it; empty where a person has named it.
	Where string
	// Namespace may be empty, which means any. Name is the manifest's or the pod's, which has the node's name as suffix.
	Namespace, Name string
}

// Named is the target that a person means by namespace/name or name.
func Named(text string) Target {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return Target{Namespace: namespace, Name: name}
	}
	return Target{Name: text}
}

func (t Target) String() string { return strings.TrimPrefix(t.Namespace+"/"+t.Name, "/") }

// errAbsent says that there is nothing to delete.
var errAbsent = errors.New("the node has no manifest of such a pod: kubelot pods lists the node's pods")

// Removals decides which manifests go. If absent is set, pods that aren't there are no problem.
func Removals(targets []Target, there []Manifest, updates map[string]topic.Pod, absent bool) ([]Change, error) {
	var changes []Change
	var problems []error
	for _, t := range targets {
		c, err := removal(t, there, updates)
		switch {
		case errors.Is(err, errAbsent) && absent:
		case err != nil:
			problems = append(problems, fmt.Errorf("%spod %s: %w", prefix(t.Where), t, err))
		case !slices.ContainsFunc(changes, func(other Change) bool { return other.File == c.File }):
			changes = append(changes, c)
		}
	}
	return changes, errors.Join(problems...)
}

func prefix(where string) string {
	if where == "" {
		return ""
	}
	return where + ": "
}

func removal(t Target, there []Manifest, updates map[string]topic.Pod) (Change, error) {
	var found []Manifest
	for _, m := range there {
		if m.Name != "" && t.means(m, updates) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0:
		return Change{}, elsewhere(t, updates)
	case len(found) > 1 && found[0].Namespace != found[1].Namespace:
		return Change{}, fmt.Errorf("it is in the namespaces %s and %s: use namespace/name", found[0].Namespace,
			found[1].Namespace)
	}
	i := slices.IndexFunc(found, func(m Manifest) bool { return m.Own && m.File == fileOf(m.Namespace, m.Name) })
	if i < 0 {
		return Change{}, fmt.Errorf("kubelot apply hasn't written its manifest %s: remove that file yourself", found[0].File)
	}
	m := found[i]
	return Change{Action: deleted, Where: t.Where, Namespace: m.Namespace, Name: m.Name, File: m.File}, nil
}

// means reports whether the target is the manifest's pod.
func (t Target) means(m Manifest, updates map[string]topic.Pod) bool {
	if t.Namespace != "" && t.Namespace != m.Namespace {
		return false
	}
	return t.Name == m.Name || slices.ContainsFunc(Of(updates, m.Namespace, m.Name), func(ref topic.Ref) bool {
		return ref.Name == t.Name
	})
}

// elsewhere says where a pod without a manifest comes from.
func elsewhere(t Target, updates map[string]topic.Pod) error {
	for _, u := range updates {
		if u.Pod == nil || t.Namespace != "" && t.Namespace != u.Pod.Namespace ||
			t.Name != u.Pod.Name && !isOf(u.Pod, u.Pod.Namespace, t.Name) {
			continue
		}
		switch u.Source {
		case topic.SourceAPI:
			return fmt.Errorf("it is the API server's: kubectl delete pod -n %s %s", u.Pod.Namespace, u.Pod.Name)
		case topic.SourceHTTP:
			return errors.New("it comes from staticPodURL: remove it there")
		case topic.SourceFile: // its file is gone already
		}
	}
	return errAbsent
}
