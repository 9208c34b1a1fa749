// Package plantest reads pods and runtime reports from the text of scenarios, for the tests of the plan and of the
// status.
package plantest

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/scenariotest"
)

// Epoch is the time 0s of scenarios.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Pod reads a PodSpec in YAML; the pod is default/web with the UID u1 and is always restarted unless the spec says
// otherwise.
func Pod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u1"
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	return pod
}

// Observation reads lines "sandbox ID key=value..." and "container ID name=NAME key=value...", newest first, and "error
// TEXT..." of what couldn't be inspected.
func Observation(t *testing.T, text string) topic.PodObservation {
	t.Helper()
	var obs topic.PodObservation
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		o := Options(words[2:])
		switch words[0] {
		case "sandbox":
			box := topic.Sandbox{
				ID: words[1], Attempt: uint32(Number(t, o["attempt"])), Ready: o["ready"] != "",
				HostNetwork: o["host"] != "",
			}
			if o["ip"] != "" {
				box.IPs = []string{o["ip"]}
			}
			obs.Sandboxes = append(obs.Sandboxes, box)
		case "container":
			obs.Containers = append(obs.Containers, topic.Container{
				ID: words[1], Name: o["name"], SandboxID: o["sandbox"], State: topic.ContainerState(o["state"]),
				Reason:  o["reason"],
				Message: strings.ReplaceAll(o["message"], "_", " "),
				Attempt: uint32(Number(t, o["restarts"])), RestartCount: Number(t, o["restarts"]),
				ExitCode:  int32(Number(t, o["code"])),
				CreatedAt: At(t, o["started"]), StartedAt: At(t, o["started"]), FinishedAt: At(t, o["finished"]), Hash: o["hash"],
			})
		case "error":
			obs.Errors = append(obs.Errors, strings.Join(words[1:], " "))
		default:
			t.Fatalf("unknown line %v", words)
		}
	}
	return obs
}

// Options are the key=value words of a line; words without a value are true.
func Options(words []string) map[string]string {
	m := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		m[key] = cmp.Or(value, "true")
	}
	return m
}

// At is a time after the Epoch, such as "5s"; empty is the zero time.
func At(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	return Epoch.Add(Duration(t, text))
}

// Duration reads a duration.
func Duration(t *testing.T, text string) time.Duration {
	t.Helper()
	return scenariotest.Duration(t, text)
}

// Number reads a number; empty is 0.
func Number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
