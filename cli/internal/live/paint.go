package live

import (
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why"
)

// Picture is the node at a time, which must not be earlier than that of an earlier picture.
func (m *Model) Picture(now time.Time) Picture {
	m.sweep(now)
	return Picture{
		At: now, Link: m.link, Synced: m.synced, Daemons: m.daemonsAt(now), Pods: m.podsAt(now), Node: m.nodeAt(now),
		Topics: m.counts.topicsAt(now, m.keys()), Flows: m.counts.flowsAt(now),
		Happenings: slices.Clone(m.happenings), From: m.from, Garbled: m.garbled,
	}
}

func (m *Model) podsAt(now time.Time) []Pod {
	rows := pods.Build(m.snapshot.State)
	all := make([]Pod, 0, len(rows))
	for _, row := range rows {
		answer := why.Explain(m.of(row.UID), row.Ref, now)
		answer.Timeline = nil
		all = append(all, Pod{
			Row: row, Static: m.snapshot.Updates[row.UID].Static(), State: answer.State, Sentence: answer.Sentence,
			Answer: answer, Start: m.start(row.UID), Logs: m.logsOf(row.UID),
		})
	}
	return all
}

// logsOf are the newest logs of the pod's containers.
func (m *Model) logsOf(uid string) []Log {
	pod := m.snapshot.Updates[uid].Pod
	if pod == nil {
		return nil
	}
	var logs []Log
	for _, spec := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, c := range m.snapshot.Observations[uid].Containers { // newest first
			if c.Name == spec.Name && c.LogPath != "" {
				logs = append(logs, Log{Container: c.Name, Path: c.LogPath})
				break
			}
		}
	}
	return logs
}

// of is the snapshot with the histories of one pod.
func (m *Model) of(uid string) why.Snapshot {
	one := m.snapshot
	one.Steps, one.Events = nil, nil
	if l, ok := m.pods[uid]; ok {
		one.Steps, one.Events = l.steps, l.events
	}
	return one
}

// Why answers for one pod as `kubelot why` does, with its timeline; ok is false where the pod isn't known. Picture's
// answers are the same without the timeline.
func (m *Model) Why(ref topic.Ref, now time.Time) (answer why.Answer, ok bool) {
	if update, here := m.snapshot.Updates[ref.UID]; !here || update.Pod == nil {
		return answer, false
	}
	return why.Explain(m.of(ref.UID), ref, now), true
}
