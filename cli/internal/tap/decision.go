package tap

import (
	"strings"

	"kubelot.dev/bus/topic"
)

func describeDecision(_ string, now topic.Decision, _ *topic.Decision) (string, bool) {
	parts := []string{string(now.Action), now.Object}
	if now.Pod != nil && now.Action != topic.ActionEvict && now.Action != topic.ActionKeep {
		parts = append(parts, "of "+now.Pod.Namespace+"/"+now.Pod.Name)
	}
	text := strings.Join(parts, " ") + ": " + now.Reason
	if now.Error != "" {
		text += "; FAILED: " + now.Error
	}
	return text, now.Error != "" || now.Action == topic.ActionEvict
}
