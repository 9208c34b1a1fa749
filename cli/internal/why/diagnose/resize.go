package diagnose

import (
	"fmt"
	"regexp"
	"strconv"
)

// belowUse is podsync's error where a memory limit would be less than what is in use. Of a container and its pod the
// container comes first.
const belowUse = `attempting to set (?:container "([^"]+)"|pod) memory limit \((\d+)\) below current usage \((\d+)\)`

// Resize is why a pod that runs doesn't get its new size.
func Resize(text string, names Names) Finding {
	f := Finding{
		Kind: "resize-fails", Why: Innermost(text), Waits: "the next try to succeed",
		Do: "kubectl get pod -o yaml shows the size that it has, in status.containerStatuses; change it again",
	}
	m := regexp.MustCompile(belowUse).FindStringSubmatch(text)
	if m == nil {
		return f
	}
	who := "the pod"
	if m[1] != "" {
		who = "container " + m[1]
	}
	f.Why = fmt.Sprintf("%s uses %s of memory, and its new limit is %s", who, memory(m[3]), memory(m[2]))
	f.Waits = "it to use less"
	f.Do = fmt.Sprintf("set a higher limit: kubectl edit pod %s -n %s --subresource=resize", names.Pod, names.Namespace)
	return f
}

// memory is a number of bytes as specs have it.
func memory(bytes string) string {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil || n < 1<<20 {
		return bytes + " bytes"
	}
	return strconv.FormatInt(n>>20, 10) + "Mi"
}
