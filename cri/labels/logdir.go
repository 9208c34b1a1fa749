package labels

import (
	"strings"

	"kubelot.dev/bus/topic"
)

// LogDir is the name of the pod's log directory below podLogsDir. Sandboxes get it as PodSandboxConfig.log_directory.
func LogDir(pod topic.Ref) string {
	return strings.Join([]string{pod.Namespace, pod.Name, pod.UID}, "_")
}

// ParseLogDir is the pod whose log directory has the name. Neither a namespace nor a name has an underscore.
func ParseLogDir(name string) (pod topic.Ref, ok bool) {
	parts := strings.Split(name, "_")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return topic.Ref{}, false
	}
	return topic.Ref{Namespace: parts[0], Name: parts[1], UID: parts[2]}, true
}
