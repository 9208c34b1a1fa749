package admission

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedhelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/admission/features"
)

// Reasons of a rejection. Shortages have the reason OutOf<resource>.
const (
	reasonEvicted            = "Evicted"
	reasonSysctl             = "SysctlForbidden"
	reasonAppArmor           = "AppArmor"
	reasonNoNode             = "InvalidNodeInfo"
	reasonOSLabel            = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonOS                 = "PodOSNotSupported"
	reasonSupplementalGroups = "SupplementalGroupsPolicyNotSupported"
	reasonNodeAffinity       = "NodeAffinity"
	reasonNodeName           = "NodeName"
	reasonNodePorts          = "NodePorts"
	reasonTaints             = "TaintToleration"
	// ReasonShutdown is for every pod on a node that shuts down.
	ReasonShutdown = "NodeShutdown"
	outOf          = "OutOf"
)

// Rejection is why a pod may not run here: the reason and message of its Failed status.
type Rejection struct {
	Reason  string
	Message string
	// short are the resources that are missing, if nothing else is amiss.
	short []shortage
}

// Error is the rejection as a sentence.
func (r *Rejection) Error() string { return r.Reason + ": " + r.Message }

// Facts are what admission must know besides the Node object.
type Facts struct {
	// OS and Arch are this machine's, as Go names them.
	OS, Arch string
	// AllowedUnsafeSysctls are names or prefixes that end in an asterisk (allowedUnsafeSysctls).
	AllowedUnsafeSysctls []string
	// AppArmor reports whether the kernel has AppArmor enabled.
	AppArmor bool
	// Pressure are the node's eviction signals.
	Pressure topic.Pressure
	// Policies are those by which pods get CPUs and memory of their own.
	Policies Policies
	// Devices are the resources of device plugins, which the resource daemon gives to pods or refuses.
	Devices map[corev1.ResourceName]topic.DeviceCount
	// ShuttingDown reports whether the node ends its pods because the machine goes down.
	ShuttingDown bool
}

// Admit decides whether pod may run on node with the active pods; nil means yes.
// Active are the pods that were admitted and have not ended; pod itself is left out if it is among them.
func Admit(pod *corev1.Pod, node *corev1.Node, active []Held, facts Facts) *Rejection {
	r := judge(pod, node, active, facts)
	// The kubelet asks for features and a shutdown last. What else is amiss is told first, but nobody is preempted for a
	// pod that can't come.
	if r != nil && (!critical(pod) || len(r.short) == 0) {
		return r
	}
	if why := features.Missing(pod); why != "" {
		return &Rejection{Reason: features.ReasonRefused, Message: why}
	}
	if facts.ShuttingDown {
		return &Rejection{Reason: ReasonShutdown, Message: "Pod was rejected as the node is shutting down."}
	}
	return r
}

// judge is Admit on a node that has the features that pods need, and doesn't shut down.
func judge(pod *corev1.Pod, node *corev1.Node, active []Held, facts Facts) *Rejection {
	for _, check := range []func(*corev1.Pod, Facts) *Rejection{pressure, sysctls, appArmor, operatingSystem} {
		if r := check(pod, facts); r != nil {
			return r
		}
	}
	if node == nil {
		return &Rejection{Reason: reasonNoNode, Message: "Kubelet cannot get node info."}
	}
	if r := supplementalGroups(pod, node); r != nil {
		return r
	}
	others := make([]Held, 0, len(active))
	for _, p := range active {
		if p.Pod.UID != pod.UID {
			others = append(others, p)
		}
	}
	other := predicates(pod, node, others, facts)
	short := shortages(pod, node, others, facts)
	if len(short) == 0 {
		return other
	}
	// A critical pod may make room for itself, unless there is more than room that it lacks.
	if other != nil && critical(pod) {
		return other
	}
	r := short[0].rejection()
	if other == nil {
		r.short = short
	}
	return r
}

// static reports whether the pod comes from a manifest.
func static(pod *corev1.Pod) bool {
	source := topic.Source(pod.Annotations[topic.SourceAnnotation])
	return source != "" && source != topic.SourceAPI
}

// critical reports whether the pod is among those that the node or the cluster can't do without.
func critical(pod *corev1.Pod) bool {
	return static(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= topic.SystemCritical
}

// pressure keeps pods away that eviction would soon remove: BestEffort ones under memory pressure, all of them
// under disk or PID pressure.
func pressure(pod *corev1.Pod, facts Facts) *Rejection {
	var conditions []string
	for _, c := range []struct {
		set  bool
		name corev1.NodeConditionType
	}{
		{facts.Pressure.Memory, corev1.NodeMemoryPressure},
		{facts.Pressure.Disk, corev1.NodeDiskPressure},
		{facts.Pressure.PID, corev1.NodePIDPressure},
	} {
		if c.set {
			conditions = append(conditions, string(c.name))
		}
	}
	if len(conditions) == 0 || critical(pod) {
		return nil
	}
	if facts.Pressure.Memory && len(conditions) == 1 && (podspec.QOSClass(pod) != corev1.PodQOSBestEffort ||
		toleratesMemoryPressure(pod)) {
		return nil
	}
	return &Rejection{
		Reason:  reasonEvicted,
		Message: fmt.Sprintf("The node had condition: [%s]. ", strings.Join(conditions, " ")),
	}
}

func toleratesMemoryPressure(pod *corev1.Pod) bool {
	taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	return schedhelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, taint, false)
}

func operatingSystem(pod *corev1.Pod, facts Facts) *Rejection {
	if label, ok := pod.Labels[corev1.LabelOSStable]; ok && label != facts.OS {
		return &Rejection{
			Reason:  reasonOSLabel,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != facts.OS {
		return &Rejection{Reason: reasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// supplementalGroups: the policy Strict needs the runtime's support (KEP-3619).
func supplementalGroups(pod *corev1.Pod, node *corev1.Node) *Rejection {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil ||
		*sc.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Rejection{
		Reason: reasonSupplementalGroups,
		Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node",
			corev1.SupplementalGroupsPolicyStrict),
	}
}

// predicates are the scheduler's filters that the node checks again, except for resources.
func predicates(pod *corev1.Pod, node *corev1.Node, others []Held, facts Facts) *Rejection {
	if !Attracts(pod, node, facts) {
		return predicate(reasonNodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return predicate(reasonNodeName, "node(s) didn't match the requested node name")
	}
	if portsTaken(pod, others) {
		return predicate(reasonNodePorts, "node(s) didn't have free ports for the requested pod ports")
	}
	noExecute := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	_, untolerated := schedhelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints,
		pod.Spec.Tolerations, noExecute, false)
	if untolerated && !static(pod) {
		return predicate(reasonTaints, "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

// Attracts reports whether the node has the labels that the pod's selector and affinity ask for.
func Attracts(pod *corev1.Pod, node *corev1.Node, facts Facts) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(labelled(node, facts))
	return ok && err == nil
}

func predicate(name, why string) *Rejection {
	return &Rejection{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

// labelled is the node with the labels that every node has, which a new Node object may still lack.
func labelled(node *corev1.Node, facts Facts) *corev1.Node {
	own := map[string]string{
		corev1.LabelOSStable: facts.OS, corev1.LabelArchStable: facts.Arch, corev1.LabelHostname: node.Name,
	}
	missing := false
	for k := range own {
		if _, ok := node.Labels[k]; !ok {
			missing = true
		}
	}
	if !missing {
		return node
	}
	maps.Copy(own, node.Labels)
	full := *node
	full.Labels = own
	return &full
}

// RefusedBefore reports whether a static pod with that status was refused. The reason may be gone since.
func RefusedBefore(source topic.Source, status corev1.PodStatus, obs topic.PodObservation) bool {
	return source != topic.SourceAPI && status.Phase == corev1.PodFailed && len(status.ContainerStatuses) == 0 &&
		len(obs.Sandboxes) == 0
}
