// Package pods is the table of the node's pods, put together from the bus.
//
// # Reads
//
// pod.sources, pod.update, status.patch, pleg.event, probe.result.
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

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/words"
)

// World is what the bus says of pods, each by its key.
type World struct {
	Sources      topic.Sources
	Updates      map[string]topic.Pod
	Objects      map[string]topic.APIPod
	Statuses     map[string]topic.PodStatus
	Observations map[string]topic.PodObservation
	Probes       map[string]topic.Probe
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
func Build(w World) []Row {
	rows := make([]Row, 0, len(w.Updates))
	for uid, update := range w.Updates {
		if update.Pod == nil {
			continue
		}
		rows = append(rows, w.row(uid, update))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return rows
}

func (w World) row(uid string, update topic.Pod) Row {
	pod, status := update.Pod, w.Statuses[uid].Status
	row := Row{
		Ref:       topic.Ref{Namespace: pod.Namespace, Name: pod.Name, UID: uid},
		Lifecycle: update.Lifecycle,
		Phase:     phase(status),
		Total:     len(pod.Spec.Containers),
		IP:        status.PodIP,
		FirstSeen: update.FirstSeen,
		Failed:    status.Phase == corev1.PodFailed,
	}
	running := w.running(uid, status)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			row.Total++
			row.Ready += one(w.ready(uid, c, running))
		}
	}
	for _, c := range pod.Spec.Containers {
		row.Ready += one(w.ready(uid, c, running))
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

// running are the IDs of the running containers by name: by the computed status, else as observed.
func (w World) running(uid string, status corev1.PodStatus) map[string]string {
	ids := map[string]string{}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.State.Running != nil {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			ids[c.Name] = id
		}
	}
	if len(ids) > 0 {
		return ids
	}
	for _, c := range w.Observations[uid].Containers {
		if c.State == topic.ContainerRunning {
			ids[c.Name] = c.ID
		}
	}
	return ids
}

// ready is readiness as Kubernetes defines it: running, started, and the readiness probe succeeds if there is one.
func (w World) ready(uid string, c corev1.Container, running map[string]string) bool {
	id, ok := running[c.Name]
	return ok &&
		(c.StartupProbe == nil || w.succeeds(uid, c.Name, topic.ProbeStartup, id)) &&
		(c.ReadinessProbe == nil || w.succeeds(uid, c.Name, topic.ProbeReadiness, id))
}

func (w World) succeeds(uid, container, kind, id string) bool {
	result, ok := w.Probes[bus.Key(uid, container, kind)]
	return ok && result.Success && result.ContainerID == id
}

// phase is the phase, or the more telling reason of the pod or a waiting container.
func phase(status corev1.PodStatus) string {
	if status.Reason != "" {
		return status.Reason
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
			return waiting.Reason
		}
	}
	return cmp.Or(string(status.Phase), "Unknown")
}

// Settled tells whether all wanted pods run, and names those that don't.
func Settled(w World, rows []Row) (settled bool, waiting []string) {
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
			waiting = append(waiting, fmt.Sprintf("%s/%s (%s, %d/%d ready)", row.Namespace, row.Name, row.Phase, row.Ready, row.Total))
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
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d/%d\t%d\t%s\t%s\n", r.Namespace, r.Name, r.Lifecycle, r.Phase,
			r.Ready, r.Total, r.Restarts, cmp.Or(r.IP, "-"), words.Age(now.Sub(r.FirstSeen)))
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
