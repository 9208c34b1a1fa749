// Package pods is the table of the node's pods, put together from the bus.
//
// # Reads
//
// pod.sources, pod.update, pod.status, status.patch, pleg.event.
//
// # Guarantees
//
// Build and Table are pure; a pod that only some topics know yet is shown with what is known.
package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon/podspec"
)

// State is what the bus says of pods, each by its key.
type State struct {
	Sources topic.Sources
	Updates map[string]topic.Pod
	// Merged are the pods' statuses, Statuses what podsync computed of them.
	Merged       map[string]topic.Merged
	Statuses     map[string]topic.PodStatus
	Observations map[string]topic.PodObservation
}

// Row is one pod.
type Row struct {
	topic.Ref
	Lifecycle topic.Lifecycle `json:"lifecycle"`
	Phase     string          `json:"phase"`
	// Ready of Total containers are ready.
	Ready     int       `json:"ready"`
	Total     int       `json:"total"`
	Restarts  int       `json:"restarts"`
	IP        string    `json:"ip,omitempty"`
	FirstSeen time.Time `json:"firstSeen"`
	// Done is true once the pod needs no more waiting for: all containers are ready, or it succeeded.
	Done bool `json:"done"`
	// Failed pods will never be ready.
	Failed bool `json:"failed,omitempty"`
}

// Build makes the rows, sorted by namespace and name.
func Build(w State) []Row {
	rows := make([]Row, 0, len(w.Updates))
	for uid, update := range w.Updates {
		if update.Pod == nil {
			continue
		}
		rows = append(rows, w.row(uid, update))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.UID, b.UID))
	})
	return rows
}

func (w State) row(uid string, update topic.Pod) Row {
	pod, status := update.Pod, w.Status(uid)
	row := Row{
		Ref:       topic.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: uid},
		Lifecycle: update.Lifecycle,
		Phase:     phase(status, w.Statuses[uid].Status.Reason),
		Total:     len(pod.Spec.Containers),
		IP:        status.PodIP,
		FirstSeen: update.FirstSeen,
		Failed:    status.Phase == corev1.PodFailed,
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			row.Total++
			row.Ready += one(ready(status.InitContainerStatuses, c.Name))
		}
	}
	for i := range pod.Spec.Containers {
		row.Ready += one(ready(status.ContainerStatuses, pod.Spec.Containers[i].Name))
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		row.Restarts += int(c.RestartCount)
	}
	if sandboxes := w.Observations[uid].Sandboxes; row.IP == "" && len(sandboxes) > 0 && len(sandboxes[0].IPs) > 0 {
		row.IP = sandboxes[0].IPs[0]
	}
	row.Done = row.Ready == row.Total || status.Phase == corev1.PodSucceeded
	return row
}

// Status is the pod's merged status. If there is none yet, it is the computed one, in which no container is ready.
func (w State) Status(uid string) corev1.PodStatus {
	if m, ok := w.Merged[uid]; ok {
		return m.Status
	}
	return w.Statuses[uid].Status
}

func ready(statuses []corev1.ContainerStatus, name string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name && s.Ready })
}

// phase is the phase, or the reason of the pod or of a waiting container, which says more. The computed status is the
// first to say why the node ends a pod. The merged one has the reason together with the resulting phase.
func phase(status corev1.PodStatus, reason string) string {
	if reason = cmp.Or(reason, status.Reason); reason != "" {
		return reason
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
			return waiting.Reason
		}
	}
	return cmp.Or(string(status.Phase), "Unknown")
}

// allRun reports whether all wanted pods run, and names those that don't.
func allRun(w State, rows []Row) (settled bool, waiting []string) {
	if !w.Sources.Ready {
		sources := make([]string, 0, len(w.Sources.Waiting))
		for _, s := range w.Sources.Waiting {
			sources = append(sources, string(s))
		}
		return false, []string{strings.TrimSpace("pod sources " + strings.Join(sources, ", "))}
	}
	done := map[string]bool{}
	for _, row := range rows {
		done[row.UID] = row.Done
		if !row.Done {
			waiting = append(waiting, fmt.Sprintf("%s/%s (%s, %d/%d ready)", row.Namespace, row.Name, row.Phase,
				row.Ready, row.Total))
		}
	}
	for _, uid := range w.Sources.Pods {
		if _, known := done[uid]; !known {
			waiting = append(waiting, "pod "+uid)
		}
	}
	return len(waiting) == 0, waiting
}

// Table draws the rows.
func Table(rows []Row, now time.Time, p paint.Painter) string {
	if len(rows) == 0 {
		return "No pods on this node.\n"
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tNAME\tLIFECYCLE\tPHASE\tREADY\tRESTARTS\tIP\tAGE")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\n", words.OneLine(r.Namespace),
			words.OneLine(r.Name), words.OneLine(string(r.Lifecycle)), words.OneLine(r.Phase), r.Ready, r.Total, r.Restarts,
			words.OneLine(cmp.Or(r.IP, "-")), words.Age(now.Sub(r.FirstSeen)))
	}
	// A strings.Builder takes every write.
	_ = table.Flush()
	return colour(text.String(), rows, p)
}

// colour paints whole lines after the columns were laid out, since a table can't count escape codes.
func colour(table string, rows []Row, p paint.Painter) string {
	lines := strings.SplitAfter(table, "\n")
	for i := range rows {
		line, newline := strings.TrimSuffix(lines[i+1], "\n"), "\n"
		switch {
		case rows[i].Failed:
			line = p.Paint(paint.Red, line)
		case !rows[i].Done:
			line = p.Paint(paint.Yellow, line)
		}
		lines[i+1] = line + newline
	}
	lines[0] = p.Paint(paint.Bold, strings.TrimSuffix(lines[0], "\n")) + "\n"
	return strings.Join(lines, "")
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
