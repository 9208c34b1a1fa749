package tap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// describe says what matters in a message of the topic, with before as the key's earlier payload
// or nil. urgent reports whether a person should look at it.
func describe(name, key string, data, before []byte) (text string, urgent bool, err error) {
	render, known := renderers[name]
	if !known {
		safe, err := redact(data)
		return string(safe), false, err
	}
	return render(key, data, before)
}

type renderer func(key string, data, before []byte) (string, bool, error)

// renderers has one entry for each topic; a test holds it complete.
var renderers = map[string]renderer{
	topic.PodUpdate.Name():        typed(describePod),
	topic.PodObject.Name():        typed(describeObject),
	topic.PodMirror.Name():        typed(describeMirror),
	topic.PodSources.Name():       typed(describeSources),
	topic.PodStep.Name():          typed(describeStep),
	topic.PLEGEvent.Name():        typed(describeObservation),
	topic.VolumeState.Name():      typed(describeVolumes),
	topic.PodAllocation.Name():    typed(describeAllocation),
	topic.PluginRegistered.Name(): typed(describePlugin),
	topic.CSIDriver.Name():        typed(describeCSIDriver),
	topic.CSIVolumes.Name():       typed(describeCSIVolumes),
	topic.ProbeResult.Name():      typed(describeProbe),
	topic.StatusPatch.Name():      typed(describeStatus),
	topic.MergedStatus.Name():     typed(describeMerged),
	topic.GCDecision.Name():       typed(describeDecision),
	topic.KubeEvent.Name():        typed(describeEvent),
	topic.NodeMachine.Name():      typed(describeMachine),
	topic.NodeRuntime.Name():      typed(describeRuntime),
	topic.NodeObject.Name():       typed(describeNode),
	topic.ResourcesOfNode.Name():  typed(describeResources),
	topic.NodePressure.Name():     typed(describePressure),
	topic.NodeShutdown.Name():     typed(describeShutdown),
	topic.Health.Name():           typed(describeHealth),
	topic.VolumeSubPath.Name():    typed(describeSubPath),
	topic.VolumeUsage.Name():      typed(describeUsage),
}

// typed decodes a message and its predecessor for a renderer of that type.
func typed[T any](render func(key string, now T, before *T) (string, bool)) renderer {
	return func(key string, data, before []byte) (string, bool, error) {
		var now T
		if err := json.Unmarshal(data, &now); err != nil {
			return "", true, err
		}
		var earlier *T
		if before != nil {
			earlier = new(T)
			if json.Unmarshal(before, earlier) != nil {
				earlier = nil
			}
		}
		text, urgent := render(key, now, earlier)
		return text, urgent, nil
	}
}

// change is "a → b", or b alone where nothing was known or nothing changed.
func change[T ~string](before *T, now T) string {
	if before == nil || *before == now || *before == "" {
		return string(now)
	}
	return string(*before) + " → " + string(now)
}

func describePod(_ string, now topic.Pod, before *topic.Pod) (string, bool) {
	var earlier *topic.Lifecycle
	if before != nil {
		earlier = &before.Lifecycle
	}
	parts := []string{change(earlier, now.Lifecycle), "from " + string(now.Source)}
	if now.Pod != nil {
		parts = append(parts, words.Plural(len(now.Pod.Spec.Containers), "container"))
		if now.Pod.DeletionTimestamp != nil {
			parts = append(parts, "deletion asked")
		}
	}
	if now.GracePeriodSeconds != nil {
		parts = append(parts, fmt.Sprintf("grace %ds", *now.GracePeriodSeconds))
	}
	return strings.Join(parts, ", "), false
}

func describeObject(_ string, now topic.APIPod, before *topic.APIPod) (string, bool) {
	phase := string(now.Status.Phase)
	if before != nil && before.Status.Phase != now.Status.Phase {
		phase = fmt.Sprintf("%s → %s", before.Status.Phase, phase)
	}
	return fmt.Sprintf("the API server has it as %s, version %s", phase, now.ResourceVersion), false
}

func describeMirror(_ string, now topic.MirrorPod, _ *topic.MirrorPod) (string, bool) {
	if now.Deleting {
		return "mirror pod is being deleted", false
	}
	return "mirror pod of manifest " + now.Hash, false
}

func describeSources(_ string, now topic.Sources, _ *topic.Sources) (string, bool) {
	if now.Ready {
		return "all sources read, " + words.Plural(len(now.Pods), "pod"), false
	}
	waiting := make([]string, 0, len(now.Waiting))
	for _, source := range now.Waiting {
		waiting = append(waiting, string(source))
	}
	return "waiting for " + strings.Join(waiting, ", "), false
}

func describeStep(_ string, now topic.Step, _ *topic.Step) (string, bool) {
	text := now.Name
	if now.Container != "" {
		text += " " + now.Container
	}
	if now.Image != "" {
		text += " (" + now.Image + ")"
	}
	switch {
	case now.Phase == topic.StepBegin:
		return text + " ...", false
	case now.Error != "":
		return fmt.Sprintf("%s failed after %s: %s", text, words.Brief(now.Duration), now.Error), true
	}
	return fmt.Sprintf("%s done in %s", text, words.Brief(now.Duration)), false
}

func describeObservation(_ string, now topic.PodObservation, before *topic.PodObservation) (string, bool) {
	earlier := map[string]topic.ContainerState{}
	if before != nil {
		for _, c := range before.Containers {
			earlier[c.ID] = c.State
		}
	}
	var parts []string
	if len(now.Sandboxes) > 0 { // the first is the newest, the others are history
		parts = append(parts, sandboxState(now.Sandboxes[0]))
	}
	seen := map[string]bool{}
	for _, c := range now.Containers {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		parts = append(parts, c.Name+" "+containerState(c, earlier[c.ID]))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing runs")
	}
	for _, problem := range now.Errors {
		parts = append(parts, "not inspected: "+problem)
	}
	return strings.Join(parts, ", "), len(now.Errors) > 0
}

func sandboxState(s topic.Sandbox) string {
	state := "sandbox gone"
	if s.Ready {
		state = "sandbox ready"
	}
	return strings.TrimSpace(state + " " + strings.Join(s.IPs, " "))
}

func containerState(c topic.Container, before topic.ContainerState) string {
	var text string
	if before != "" {
		text = change(&before, c.State)
	} else {
		text = string(c.State)
	}
	if c.State == topic.ContainerExited {
		text += fmt.Sprintf(" (%d", c.ExitCode)
		if c.Reason != "" {
			text += " " + c.Reason
		}
		text += ")"
	}
	if c.RestartCount > 0 {
		text += fmt.Sprintf(" restart %d", c.RestartCount)
	}
	return text
}

func describeVolumes(_ string, now topic.PodVolumes, before *topic.PodVolumes) (string, bool) {
	var earlier *topic.VolumePhase
	if before != nil {
		earlier = &before.Phase
	}
	parts := []string{change(earlier, now.Phase), words.Plural(len(now.Volumes), "volume")}
	urgent := false
	for _, name := range slices.Sorted(maps.Keys(now.Volumes)) {
		v := now.Volumes[name]
		if v.Message != "" && v.Phase != topic.VolumeMounted {
			parts = append(parts, fmt.Sprintf("%s %s: %s", name, v.Phase, v.Message))
		}
		urgent = urgent || v.Phase == topic.VolumeFailed
	}
	return strings.Join(parts, ", "), urgent
}

func describeCSIDriver(_ string, now topic.CSINodeInfo, _ *topic.CSINodeInfo) (string, bool) {
	text := fmt.Sprintf("%s calls this node %s", now.Name, now.NodeID)
	for _, key := range slices.Sorted(maps.Keys(now.Topology)) {
		text += fmt.Sprintf(", %s=%s", key, now.Topology[key])
	}
	if now.MaxVolumes > 0 {
		text += fmt.Sprintf(", at most %s", words.Plural(int(now.MaxVolumes), "volume"))
	}
	return text, false
}

func describeCSIVolumes(_ string, now topic.VolumesInUse, _ *topic.VolumesInUse) (string, bool) {
	return fmt.Sprintf("%s in use that must be attached", words.Plural(len(now.Names), "volume")), false
}

func describePlugin(_ string, now topic.Plugin, _ *topic.Plugin) (string, bool) {
	kind := map[topic.PluginType]string{
		topic.CSIPlugin: "CSI driver", topic.DRAPlugin: "DRA driver", topic.DevicePlugin: "device plugin",
	}[now.Type]
	text := fmt.Sprintf("%s %s %s at %s", cmp.Or(kind, string(now.Type)), now.Name, strings.Join(now.Versions, " "),
		now.Endpoint)
	if n := len(now.Others); n > 0 {
		text += fmt.Sprintf(", and %s from before", words.Plural(n, "endpoint"))
	}
	return text, false
}

func describeProbe(key string, now topic.Probe, _ *topic.Probe) (string, bool) {
	what := key
	if k, ok := topic.ParseProbeKey(key); ok {
		what = k.Container + " " + k.Kind
	}
	if now.Success {
		return what + " succeeds", false
	}
	return strings.TrimRight(what+" fails: "+now.Message, ": "), true
}

func describeStatus(_ string, now topic.PodStatus, before *topic.PodStatus) (string, bool) {
	var earlier *corev1.PodPhase
	if before != nil {
		earlier = &before.Status.Phase
	}
	parts := []string{change(earlier, now.Status.Phase)}
	if now.Status.Reason != "" {
		parts = append(parts, now.Status.Reason)
	}
	if now.Status.PodIP != "" {
		parts = append(parts, now.Status.PodIP)
	}
	urgent := now.Status.Phase == corev1.PodFailed
	for _, c := range slices.Concat(now.Status.InitContainerStatuses, now.Status.ContainerStatuses) {
		text, bad := statusOf(c)
		parts, urgent = append(parts, c.Name+" "+text), urgent || bad
	}
	if now.Finished {
		parts = append(parts, "finished for good")
	}
	return strings.Join(parts, ", "), urgent
}

func describeMerged(_ string, now topic.Merged, before *topic.Merged) (string, bool) {
	var earlier *corev1.PodPhase
	if before != nil {
		earlier = &before.Status.Phase
	}
	parts := []string{change(earlier, now.Status.Phase)}
	for _, c := range now.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		text := "ready"
		if c.Status != corev1.ConditionTrue {
			text = strings.TrimRight("not ready: "+strings.TrimSpace(c.Reason+" "+c.Message), ": ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", "), now.Status.Phase == corev1.PodFailed
}

func statusOf(c corev1.ContainerStatus) (text string, urgent bool) {
	switch {
	case c.State.Running != nil:
		return "running", false
	case c.State.Terminated != nil:
		t := c.State.Terminated
		return fmt.Sprintf("ended (%d %s)", t.ExitCode, t.Reason), t.ExitCode != 0
	case c.State.Waiting != nil:
		reason := c.State.Waiting.Reason
		return "waits (" + reason + ")", reason != "PodInitializing" && reason != "ContainerCreating"
	}
	return "waits", false
}

func describeEvent(_ string, now topic.Event, _ *topic.Event) (string, bool) {
	return fmt.Sprintf("%s %s: %s", now.Type, now.Reason, now.Message), now.Type == corev1.EventTypeWarning
}

func describeUsage(_ string, now topic.VolumeUsageRequest, _ *topic.VolumeUsageRequest) (string, bool) {
	return "how full is volume " + now.Volume + "?", false
}

func describeSubPath(_ string, now topic.SubPathRequest, _ *topic.SubPathRequest) (string, bool) {
	return now.Container + ": " + words.Plural(len(now.Mounts), "subPath mount"), false
}
