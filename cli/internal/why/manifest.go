package why

import (
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
)

// manifest is a manifest of static pods that podsync can't use: a file, a URL, or a pod whose name another has.
type manifest struct{ where, problem string }

// manifests are those that can't be used now, the one that was told of last at the end.
func (w Snapshot) manifests() []manifest {
	var list []manifest
	for _, e := range w.Events {
		where, problem, ok := strings.Cut(e.Message, ": ")
		// What has been told before the start of podsync is told again if it is still so.
		if e.Kind != "Node" || !ok || e.At.Before(w.Healths["podsync"].Started) ||
			e.Reason != topic.ManifestInvalid && e.Reason != topic.ManifestUsable {
			continue
		}
		list = slices.DeleteFunc(list, func(m manifest) bool { return m.where == where })
		if e.Type == corev1.EventTypeWarning {
			list = append(list, manifest{where, problem})
		}
	}
	return list
}

// of reports whether the manifest may be that of the pod.
func (m manifest) of(pod string) bool {
	name := pod[strings.LastIndex(pod, "/")+1:]
	if name == "" {
		return false
	}
	if of, ok := strings.CutPrefix(m.where, "pod "); ok {
		return of == pod || strings.HasSuffix(of, "/"+name)
	}
	file := strings.TrimSuffix(filepath.Base(m.where), filepath.Ext(m.where))
	return strings.Contains(file, name) || strings.HasPrefix(name, file+"-") ||
		slices.Contains(strings.FieldsFunc(m.problem, func(r rune) bool {
			return strings.ContainsRune(" \"':,/()", r)
		}), name)
}

func (m manifest) cause() Cause {
	what := "manifest " + m.where
	advice := "correct the file " + m.where + "; kubelot apply -f checks a manifest before it installs it"
	switch {
	case strings.HasPrefix(m.where, "pod "):
		what, advice = m.where, "rename one of the pods: kubelot pods; ls the manifests on this node"
	case strings.Contains(m.where, "://"):
		advice = "correct what " + m.where + " serves"
	}
	return Cause{
		Kind: "manifest-invalid", Sentence: "the " + what + " can't be used: " + diagnose.Innermost(m.problem),
		What: what, Problem: m.problem, Waits: "a change of the manifest", Advice: advice,
	}
}

// unread are the causes why there is no pod of the name: its manifest can't be used.
func (w Snapshot) unread(pod string) []Cause {
	var causes []Cause
	for _, m := range w.manifests() {
		if m.of(pod) {
			causes = append(causes, m.cause())
		}
	}
	return causes
}

// manifestCauses are all manifests that can't be used. Pods whose name another has are left out: nobody says when one
// of them has gone.
func (w Snapshot) manifestCauses() []Cause {
	var causes []Cause
	for _, m := range w.manifests() {
		if !strings.HasPrefix(m.where, "pod ") {
			causes = append(causes, m.cause())
		}
	}
	return causes
}
