package diagnose

import "strings"

// again is what to do about a pod that this node has refused for good.
const again = "a refusal is final: delete the pod and let it be made again, "

// ends are the reasons of pods that the node has ended or refused; here match is about "reason: message".
var ends = []rule{
	{
		"rejected-pressure", `^Evicted: .*The node had condition: \[([^\]]*)\]`,
		"this node takes no such pods while it has {1}", "", again + "and relieve the node: kubelot why node",
	},
	{
		"rejected-sysctl", `^SysctlForbidden: .*forbidden sysctl: "([^"]+)" (.*)`,
		`the kernel parameter "{1}" that it asks for is {2} on this node`, "",
		again + "without the sysctl, or with {1} in allowedUnsafeSysctls of kubelot's configuration",
	},
	{
		"rejected-apparmor", `^AppArmor: .*Cannot enforce AppArmor: (.*)`,
		"its AppArmor profile can't be enforced: {1}", "", again + "without the profile, or on a node with AppArmor",
	},
	{
		"rejected-no-node", `^InvalidNodeInfo`,
		"kubelot didn't know its own Node object", "",
		again + "and see whether kubelot reaches the API server: kubelot doctor",
	},
	{
		"rejected-os", `^PodOS(?:SelectorNodeLabelDoesNotMatch|NotSupported)`,
		"it asks for another operating system than this node's", "",
		again + "with spec.os and the nodeSelector kubernetes.io/os of a node that exists",
	},
	{
		"rejected-groups", `^SupplementalGroupsPolicyNotSupported`,
		"it asks for supplementalGroupsPolicy: Strict, which this node's runtime can't do", "",
		again + "without the policy, or on a node with containerd 2.0",
	},
	{
		"rejected-features", `^PodFeatureUnsupported: .*not available: (.*)`,
		"it needs features that this node doesn't have: {1}", "", again + "without them, or on a node with them in " +
			"status.declaredFeatures",
	},
	{
		"rejected-affinity", `^NodeAffinity`,
		"its nodeSelector or node affinity doesn't match this node's labels", "",
		again + "and compare: kubectl get node --show-labels",
	},
	{
		"rejected-node-name", `^NodeName`,
		"its spec.nodeName names another node", "", again + "or correct the manifest",
	},
	{
		"rejected-port", `^NodePorts`,
		"another pod of this node has its host port", "", again + "and find who has it: kubelot pods; ss -ltnp on this node",
	},
	{
		"rejected-taint", `^TaintToleration`,
		"this node has a NoExecute taint that it doesn't tolerate", "",
		again + "with a toleration, or remove the taint: kubectl describe node",
	},
	{
		"node-shutdown", `^(?:NodeShutdown|Terminated)(?:: |$)`,
		"the node was being shut down", "", "start the node again; the pod's controller makes another pod",
	},
	{
		"rejected-pods", `^OutOfpods: .*used: (\d+), capacity: (\d+)`,
		"this node has {1} of at most {2} pods already", "",
		again + "on another node, or raise maxPods in kubelot's configuration",
	},
	{
		"rejected-cpu", `^OutOfcpu: .*requested: (\d+), used: (\d+), capacity: (\d+)`,
		"this node hasn't enough cpu: it requests {1}m, and {2}m of {3}m are taken", "",
		again + "with smaller requests, or on another node: kubectl describe node",
	},
	{
		"rejected-resources", `^OutOf\S+: .*resource: (\S+), requested: (\d+), used: (\d+), capacity: (\d+)`,
		"this node hasn't enough {1}: it requests {2}, and {3} of {4} are taken", "",
		again + "with smaller requests, or on another node: kubectl describe node",
	},
	{
		"rejected-volumes", `^VolumeAttachmentLimitExceeded`,
		"this node can have no more volumes of a driver that it needs", "", again + "on another node",
	},
	{
		"rejected-devices", `^UnexpectedAdmissionError: .*unavailable for (\S+)\. Requested: (\d+), Available: (\d+)`,
		"this node has too few devices {1}: it asks for {2}, and {3} are free", "",
		again + "on another node: kubectl describe node shows how many {1} are allocated",
	},
	{
		"rejected-device-unknown", `^UnexpectedAdmissionError: .*cannot allocate unregistered device (\S+?),? `,
		"no device plugin of this node has {1}", "",
		again + "on a node with the device plugin of {1}",
	},
	{
		"rejected-device-unhealthy", `^UnexpectedAdmissionError: .*cannot allocate unhealthy devices (\S+?),? `,
		"the devices {1} of this node are unhealthy", "",
		again + "on another node, and see the log of the device plugin of {1}",
	},
	{
		"rejected-topology", `^TopologyAffinityError`,
		"this node can't give it CPUs, memory and devices that are near to one another (topologyManagerPolicy)", "",
		again + "with smaller requests, or on a node with more left on one NUMA node",
	},
	{
		"rejected-smt", `^SMTAlignmentError: (?:SMT Alignment Error: )?(.*)`,
		"this node gives whole physical CPUs only (full-pcpus-only): {1}", "",
		again + "with requests.cpu that are a multiple of a core's threads: lscpu on this node",
	},
	{
		"rejected-admission", `^UnexpectedAdmissionError: (?:Allocate failed due to )?(?:rpc error: code = \w+ desc = )?(.*?)(?:, which is unexpected)?$`,
		"this node can't give it the devices or CPUs that it asks for: {1}", "", again + "on another node",
	},
	{
		"preempted", `^Preempting`,
		"it had to make room for a critical pod", "", "its controller makes another; give it a priorityClassName that counts",
	},
	{
		"deadline-exceeded", `^DeadlineExceeded`,
		"it ran longer than its activeDeadlineSeconds", "",
		"raise activeDeadlineSeconds, or see why it took so long: its log",
	},
	{
		"evicted-volume-limit", `^Evicted: .*Usage of EmptyDir volume "([^"]+)" exceeds the limit "([^"]+)"`,
		`it wrote more into its emptyDir "{1}" than the limit of {2}`, "", "raise sizeLimit of the volume {1}, or write less",
	},
	{
		"evicted-container-limit", `^Evicted: .*Container (\S+) exceeded its local ephemeral storage limit "([^"]+)"`,
		"its container {1} wrote more to the node's disk than its limit of {2}", "",
		"raise resources.limits.ephemeral-storage of container {1}, or write less (logs count)",
	},
	{
		"evicted-pod-limit", `^Evicted: .*exceeds the total limit of containers (\S+?)\. `,
		"it wrote more to the node's disk than the limits of its containers, {1}", "",
		"raise resources.limits.ephemeral-storage, or write less (logs and emptyDirs count)",
	},
	{
		"evicted-low",
		`^Evicted: .*low on resource: ([\w-]+)\. Threshold quantity: ([^,]+), available: (\S+?)\. ` +
			`(?:Container (\S+) was using ([^,]+), request is ([^,]+))`,
		"this node ran out of {1} ({3} left, at {2} it evicts): its container {4} used {5} and requests {6}", "",
		"raise resources.requests.{1} of container {4} to what it needs; kubelot why node shows who else was evicted",
	},
	{
		"evicted-low", `^Evicted: .*low on resource: ([\w-]+)\.`,
		"this node ran out of {1}", "",
		"its controller makes another; kubelot why node shows who else was evicted",
	},
}

// End is why the node has ended a pod or refused it. Not ok is a pod that has ended by itself.
func End(reason, message string, names Names) (Finding, bool) {
	if reason == "" {
		return Finding{}, false
	}
	message = strings.TrimPrefix(message, "Pod was rejected: ")
	if f, ok := first(ends, strings.TrimSpace(reason)+": "+message, names); ok {
		return f, true
	}
	return Finding{Kind: "ended-by-node", Why: strings.TrimSuffix(reason+": "+Innermost(message), ": ")}, true
}
