package evict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// chooser is what a scenario knows of figures: the last ones of each pod, when they were read, and whether stats
// answers.
type chooser struct {
	due    []Due
	obs    Observations
	waits  Waits
	readAt map[string]time.Time
	reread map[string]func() *statsv1alpha1.PodStats
	silent bool
}

func newChooser() chooser {
	return chooser{waits: Waits{}, readAt: map[string]time.Time{}, reread: map[string]func() *statsv1alpha1.PodStats{}}
}

// figures does the commands about figures.
func (s *scenario) figures(t *testing.T, d *datadriven.TestData, words []string, now time.Time, l Layout) string {
	switch d.Cmd {
	case "figures":
		lines := map[string]string{}
		for line := range strings.Lines(d.Input) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if s.pods[name] == nil {
				t.Fatalf("figures of pod %q, which isn't there", name)
			}
			if s.pods[name].Stats = nil; rest != "" {
				lines[name] += rest + "\n"
			}
		}
		for name, text := range lines {
			s.readAt[name], s.reread[name] = now, func() *statsv1alpha1.PodStats { return usageOf(t, text) }
			s.pods[name].Stats = s.reread[name]()
		}
	case "silent", "answers":
		s.silent = d.Cmd == "silent"
	case "gone":
		delete(s.pods, words[0])
	case "choose":
		return s.choose(now, l)
	}
	return ""
}

// timed gives all figures their time.
func timed(p *statsv1alpha1.PodStats, at time.Time) {
	if p.Memory != nil {
		p.Memory.Time = metav1.NewTime(at)
	}
	for i := range p.VolumeStats {
		p.VolumeStats[i].Time = metav1.NewTime(at)
	}
	for i := range p.Containers {
		for _, fs := range []*statsv1alpha1.FsStats{p.Containers[i].Rootfs, p.Containers[i].Logs} {
			if fs != nil {
				fs.Time = metav1.NewTime(at)
			}
		}
	}
}

// told are the pod's figures as stats tells them: in whole seconds, and more than a second too old where they are too
// old.
func (s *scenario) told(c Candidate, notBefore time.Time) *statsv1alpha1.PodStats {
	read, counted := s.readAt[c.Pod.Name]
	if c.Stats == nil || !counted {
		return c.Stats
	}
	out := s.reread[c.Pod.Name]()
	if read.Before(notBefore) {
		read, out.ProcessStats = notBefore.Add(-time.Second), nil
	}
	timed(out, read.Truncate(time.Second))
	return out
}

// choose does what gc does: for each of the node's conditions it tries one threshold after the other until somebody is
// evicted.
func (s *scenario) choose(now time.Time, l Layout) string {
	var out strings.Builder
	done := map[corev1.NodeConditionType]bool{} // each has one eviction at a time
	for _, d := range s.due {
		if done[d.Signal.Condition()] {
			continue
		}
		w := s.waits.For(d, now)
		pods := s.sorted()
		for i := range pods {
			if pods[i].Stats = s.told(pods[i], w.NotBefore()); s.silent {
				pods[i].Stats = nil
			}
		}
		if !s.silent {
			w.Answer = &statsv1alpha1.Summary{}
		}
		c := Choose(Question{Wait: *w, Now: now, Observation: s.obs[d.Signal], Layout: l, Pods: pods})
		if c.Waits() {
			fmt.Fprintf(&out, "%s: %s\n", d.Signal, c.Awaited())
			continue
		}
		maps.DeleteFunc(s.waits, func(_ string, w *Wait) bool { return w.Signal.Condition() == d.Signal.Condition() })
		at := slices.IndexFunc(c.Order, func(r Ranked) bool { return !r.Critical() })
		if at < 0 {
			fmt.Fprintf(&out, "%s: nobody to evict\n", d.Signal)
			continue
		}
		r := c.Order[at]
		why := strings.TrimSpace(r.Why(d.Threshold, s.obs[d.Signal], at) + ". " + c.Lacking(r))
		fmt.Fprintf(&out, "evict %s for %s\n", r.Pod.Name, why)
		done[d.Signal.Condition()] = true
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}
