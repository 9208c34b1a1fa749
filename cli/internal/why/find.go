package why

import (
	"fmt"
	"slices"
	"strings"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/words"
)

// Find returns the pod with a name (namespace/name or name) or UID. If several have the name, it is the newest. A pod
// that has the name counts before others. The next is a static pod whose manifest has the name: its pod has the node's
// name as suffix. The last is a pod whose name begins with it, if there is only one. If the node has none of these, it
// is the last one that the node had. If it never had one, and a manifest that can't be used may be the pod's, the
// result has the name and no UID.
func Find(w Snapshot, name string) (topic.Ref, error) {
	var here, gone []topic.Ref
	for _, row := range pods.Build(w.State) {
		here = append(here, row.Ref)
	}
	slices.SortStableFunc(here, func(a, b topic.Ref) int {
		return w.Updates[b.UID].FirstSeen.Compare(w.Updates[a.UID].FirstSeen)
	})
	for _, s := range slices.Backward(w.Steps) {
		gone = append(gone, s.Ref)
	}
	named := func(ref topic.Ref) bool { return called(ref, name) }
	ofManifest := func(ref topic.Ref) bool {
		update := w.Updates[ref.UID]
		return update.Pod != nil && update.Static() && called(ref, name+"-"+update.Pod.Spec.NodeName)
	}
	for _, search := range []struct {
		refs []topic.Ref
		is   func(topic.Ref) bool
	}{{here, named}, {here, ofManifest}, {gone, named}} {
		if found := filter(search.refs, search.is); len(found) > 0 {
			return found[0], oneNamespace(name, found)
		}
	}
	for _, refs := range [][]topic.Ref{here, gone} {
		found := filter(refs, func(ref topic.Ref) bool { return begins(ref, name) })
		if len(found) == 0 {
			continue
		}
		return found[0], oneName(name, found)
	}
	if len(w.unread(name)) > 0 {
		return topic.Ref{Name: name}, nil
	}
	others := ""
	if n := len(w.manifestCauses()); n > 0 {
		others = fmt.Sprintf("; %s of static pods can't be used (kubelot why node)", words.Plural(n, "manifest"))
	}
	return topic.Ref{}, fmt.Errorf("this node knows no pod %s: is it scheduled to this node? (kubectl get pod -o wide; "+
		"kubelot pods lists the node's)%s", name, others)
}

func filter(refs []topic.Ref, is func(topic.Ref) bool) []topic.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(ref topic.Ref) bool { return !is(ref) })
}

// called reports whether name is the pod's name, with or without its namespace, or its UID.
func called(ref topic.Ref, name string) bool {
	if strings.Contains(name, "/") {
		return name == ref.Namespace+"/"+ref.Name
	}
	return name == ref.Name || name == ref.UID
}

// begins reports whether the pod's name begins with prefix, which may have a namespace.
func begins(ref topic.Ref, prefix string) bool {
	if strings.Contains(prefix, "/") {
		return strings.HasPrefix(ref.Namespace+"/"+ref.Name, prefix)
	}
	return prefix != "" && strings.HasPrefix(ref.Name, prefix)
}

// oneNamespace is an error if the pods are of several namespaces.
func oneNamespace(name string, found []topic.Ref) error {
	for _, other := range found[1:] {
		if other.Namespace != found[0].Namespace {
			return fmt.Errorf("pods named %s exist in the namespaces %s and %s: use namespace/name", name,
				found[0].Namespace, other.Namespace)
		}
	}
	return nil
}

// oneName is an error if the pods have several names.
func oneName(prefix string, found []topic.Ref) error {
	var names []string
	for _, ref := range found {
		names = append(names, ref.Namespace+"/"+ref.Name)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 1 {
		return fmt.Errorf("%s is the beginning of the names of %d pods, such as %s and %s: use the whole name", prefix,
			len(names), names[0], names[1])
	}
	return nil
}
