// Package livetest is a small node's life as messages of the bus, for tests of what draws it.
package livetest

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/recording"
)

// Begin is when the story begins, and End when its last message comes.
var (
	Begin = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	End   = Begin.Add(50 * time.Second)
)

// At is so long after the beginning.
func At(after time.Duration) time.Time { return Begin.Add(after) }

// Message is a message of a topic; a nil value is a tombstone.
func Message(after time.Duration, daemon string, t bus.Topic, key string, value any) bus.Message {
	m := bus.Message{
		Subject: t.Name(), Time: At(after),
		Header: map[string]string{bus.HeaderDaemon: daemon, bus.HeaderSchema: strconv.Itoa(t.Schema())},
	}
	if key != "" {
		m.Subject += "." + key
	}
	if value == nil {
		m.Header[bus.HeaderTombstone] = "1"
		return m
	}
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a payload of the story: %v", err)) // all are plain structs
	}
	m.Data = data
	return m
}

// Ref names a pod of the story.
func Ref(uid, name string) topic.Ref { return topic.Ref{Namespace: "default", Name: name, UID: uid} }

// Pod is a pod with one container, first seen at a time.
func Pod(uid, name string, seen time.Duration, change func(*topic.Pod)) topic.Pod {
	p := topic.Pod{
		Source: topic.SourceAPI, Lifecycle: topic.Syncing, FirstSeen: At(seen),
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
			Spec: corev1.PodSpec{
				NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways,
				Containers: []corev1.Container{{Name: "app", Image: "registry.example/" + name + ":1"}},
			},
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// health is a daemon's.
func health(daemon string, after, started time.Duration, state topic.HealthState, message string) bus.Message {
	return Message(after, daemon, topic.Health, daemon, topic.DaemonHealth{
		State: state, Message: message, Since: At(started), Beat: At(after).Add(-2 * time.Millisecond), Version: "v0.2.0",
		PID: pid(daemon), Started: At(started),
	})
}

// pid is the daemon's process.
func pid(daemon string) int {
	pid := 100 * len(daemon)
	for _, letter := range daemon {
		pid += int(letter)
	}
	return pid
}

// Step is the end of a step.
func Step(after time.Duration, ref topic.Ref, s topic.Step) bus.Message {
	s.Ref, s.Phase, s.At = ref, topic.StepEnd, At(after).Add(-time.Millisecond)
	if s.Name == "ensure image" {
		s.Image = "registry.example/" + ref.Name + ":1"
	}
	return Message(after, "podsync", topic.PodStep, ref.UID, s)
}

// open is the begin of a step that has taken a second when it is made known.
func open(after time.Duration, ref topic.Ref, name, container string) bus.Message {
	return Message(after+time.Second, "podsync", topic.PodStep, ref.UID, topic.Step{
		Ref: ref, Name: name, Container: container, Phase: topic.StepBegin, At: At(after),
	})
}

// running is a container that runs.
func running(id string, restarts int, created, started time.Duration) topic.Container {
	return topic.Container{
		ID: id, Name: "app", State: topic.ContainerRunning, RestartCount: restarts, Attempt: uint32(restarts),
		CreatedAt: At(created), StartedAt: At(started), LogPath: "/var/log/pods/" + id + ".log",
	}
}

// Status is a pod's status with one container.
func Status(ref topic.Ref, phase corev1.PodPhase, c corev1.ContainerStatus, ready bool,
	since time.Duration,
) topic.Merged {
	c.Name, c.Ready = "app", ready
	state := corev1.ConditionFalse
	if ready {
		state = corev1.ConditionTrue
	}
	return topic.Merged{Ref: ref, Status: corev1.PodStatus{
		Phase: phase, PodIP: "10.0.0.7", ContainerStatuses: []corev1.ContainerStatus{c},
		Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: state, LastTransitionTime: metav1.NewTime(At(since)),
		}},
	}}
}

// Waiting is a container that waits.
func Waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	}}
}

// node is a node that is ready.
func node(ready bool) corev1.Node {
	state := corev1.ConditionTrue
	if !ready {
		state = corev1.ConditionFalse
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Conditions: []corev1.NodeCondition{
				{
					Type: corev1.NodeReady, Status: state, Reason: "KubeletReady", Message: "kubelet is posting ready status",
					LastTransitionTime: metav1.NewTime(At(-time.Hour)),
				},
				{
					Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
					LastTransitionTime: metav1.NewTime(At(-time.Hour)),
				},
			},
		},
	}
}

// notFound is what containerd says of an image that isn't there.
const notFound = `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/broken:1": ` +
	`failed to resolve reference "registry.example/broken:1": registry.example/broken:1: not found`

// Story is a node with a pod that starts (web), one whose image doesn't exist (broken), one that crashes (crash), and
// one that is being ended (old).
func Story() []bus.Message {
	var all []bus.Message
	all = append(all, crew()...)
	all = append(all, web()...)
	all = append(all, broken()...)
	all = append(all, crash()...)
	all = append(all, old()...)
	slices.SortStableFunc(all, func(a, b bus.Message) int { return a.Time.Compare(b.Time) })
	return all
}

// Record writes the story as a recording.
func Record(out io.Writer) error {
	w, err := recording.NewWriter(out, recording.Header{Created: Begin, From: Begin, Kubelot: "v0.2.0"})
	if err != nil {
		return err
	}
	for _, m := range Story() {
		if err := w.Add(recording.Of(m, m.Data, false)); err != nil {
			return err
		}
	}
	return nil
}
