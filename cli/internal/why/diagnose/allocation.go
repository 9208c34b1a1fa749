package diagnose

import "slices"

// lookAtDriver is where to look for what is wrong with a driver of claims.
const lookAtDriver = "see the pod of the driver {1} on this node, and its log; " +
	"kubectl get resourceslices shows what it has"

// claims are what keeps a pod from its claims of devices, or from giving them back.
var claims = []rule{
	{
		"dra-driver-missing", `DRA driver (\S+) is not registered: the pod stays until`,
		"the driver {1} is gone from this node, and only it can take back what it has prepared",
		"the driver's DaemonSet on this node", "bring the pod of the driver {1} back to this node; " +
			"if it is gone for good, kubelot claims says how to give up on it",
	},
	{
		"dra-driver-missing", `DRA driver ([^\s,]+) is not registered`,
		"the driver {1} of a device that it claims isn't registered on this node",
		"the driver's DaemonSet on this node; it goes on when the driver registers",
		"does the driver's DaemonSet run on this node? Its socket should be in /var/lib/kubelet/plugins_registry",
	},
	{
		"dra-driver-slow", `has not answered for (\S+) \(DRA driver (\S+)\)`,
		"the driver {2} of a device that it claims hasn't answered for {1}", "the driver's answer",
		"see the pod of the driver {2} on this node, and its log",
	},
	{
		"dra-prepare-fails",
		`NodePrepareResources(?: failed for ResourceClaim( [^\s:]+))?:? (?:rpc error: code = \w+ desc = )?(.*) \(DRA driver (\S+)\)`,
		"the driver {3} can't prepare its claim{1}: {2}", "the driver's next try",
		"see the log of the driver {3} on this node",
	},
	{
		"dra-unprepare-fails",
		`NodeUnprepareResources(?: failed for ResourceClaim( [^\s:]+))?:? (?:rpc error: code = \w+ desc = )?(.*) \(DRA driver (\S+)\)`,
		"the driver {3} can't take back its claim{1}: {2}", "the driver's next try",
		"see the log of the driver {3} on this node",
	},
	{
		"dra-driver-asked", `waiting for Node\w+ of DRA driver (.+)`,
		"the driver {1} makes its devices ready", "the driver's answer", lookAtDriver,
	},
	{
		"dra-driver-asked", `DRA driver (\S+) (?:is being called about|prepares) ResourceClaim ([^\s,]+)`,
		"the driver {1} is busy with the claim {2}", "the driver's answer", lookAtDriver,
	},
	{
		"resource-claim-missing", `fetch ResourceClaim ([^\s:]+): .*not found`,
		`the ResourceClaim "{1}" doesn't exist in the namespace {ns}`, `the ResourceClaim "{1}"`,
		"create what is missing: kubectl get resourceclaims -n {ns}; apply the claim {1}",
	},
	{
		"resource-claim-missing", `ResourceClaim not created yet`,
		"the ResourceClaim of its template doesn't exist yet", "kube-controller-manager to make it",
		"kubectl describe pod {pod} -n {ns}: does its ResourceClaimTemplate exist?",
	},
	{
		"resource-claim-unallocated", `ResourceClaim ([^\s:]+): not allocated`,
		"its ResourceClaim {1} has no device", "the scheduler to allocate one",
		"kubectl describe resourceclaim {1} -n {ns}; a pod that names its node itself goes round the scheduler",
	},
	{
		"resource-claim-denied", `not allowed to use ResourceClaim (\S+)|ResourceClaim (\S+) was not created for Pod`,
		"its ResourceClaim {1}{2} isn't reserved for it", "the scheduler to reserve it",
		"kubectl get resourceclaim -n {ns} -o yaml shows in status.reservedFor who has it",
	},
	{
		"resource-claim-in-use",
		`ResourceClaim (\S+) is (?:being unprepared|still used)|old ResourceClaim with same name (\S+)`,
		"its ResourceClaim {1}{2} is still being taken back from an earlier pod", "the end of that",
		"kubelot tap --topic pod.allocation --since 10m shows which pod; see the log of the claim's driver",
	},
	{
		"api-server-unreachable", `fetch ResourceClaim (\S+): .*(?:dial tcp|no answer|deadline exceeded|timed out)`,
		"the API server doesn't answer, and only it knows what the claim {1} is", "the API server's answer",
		"kubelot doctor; then whether this node reaches the API server",
	},
	{
		"forbidden", `is forbidden: (.*)`,
		"the API server doesn't let this node read its claim: {1}", "",
		"does the pod run on this node by its spec.nodeName? kubectl auth can-i as system:node:NODE",
	},
	{
		"claims-wait", `^waiting for (?:its claims of devices|the end of a call)`,
		"its claims of devices are being worked on", "the drivers of its claims", "kubectl get resourceclaims -n {ns}",
	},
}

// lookAtPlugin is where to look for what is wrong with a device plugin.
const lookAtPlugin = "see the pod of the device plugin of {1} on this node, and its log"

// plugins are what keeps a pod from the devices of device plugins.
var plugins = []rule{
	{
		"device-sources-wait", `^waiting for all sources of pods.*?: (.*)`,
		"pods that are gone may have the devices or CPUs that it asks for, and not all sources of pods have been read",
		"all sources of pods", "kubelot doctor: podsync says which source it can't read",
	},
	{
		"device-plugin-returns", `waiting for the device plugin of (\S+), which was here before`,
		"the device plugin of {1} has not registered again since the resource daemon was started", "the device plugin",
		lookAtPlugin,
	},
	{
		"device-plugin-missing", `the device plugin isn't there: ([^\s:;]+)`,
		"the device plugin of {1} isn't there", "the device plugin's DaemonSet on this node", lookAtPlugin,
	},
	{
		"device-plugin-missing", `cannot allocate unhealthy devices ([^\s;]+)`,
		"the device plugin of {1} isn't there any more, or has no healthy device", "the device plugin", lookAtPlugin,
	},
	{
		"device-plugin-slow", `the device plugin does not answer: \S+ of (\S+) has taken longer than ([^\s;]+)`,
		"the device plugin of {1} hasn't answered for {2}", "the device plugin's answer", lookAtPlugin,
	},
	{
		"device-plugin-asked", `^waiting for device plugins to allocate`,
		"a device plugin is asked for its devices", "the device plugin's answer",
		"kubelot tap --topic pod.allocation --since 10m; see the logs of this node's device plugins",
	},
	{
		"devices-not-saved", `no space left on device|read-only file system`,
		"what it gets can't be written to the state files in the kubelet's directory", "the disk",
		"df -h /var/lib/kubelet; ls -l /var/lib/kubelet/*_state",
	},
}

// Allocation is why a pod doesn't have its devices, CPUs or claims yet, or hasn't given them back.
func Allocation(text string, names Names) Finding {
	unknown := rule{
		"allocation-waits", "", "", "the daemon resource",
		"kubelot tap --topic pod.allocation --since 10m --pod {ns}/{pod}",
	}.finding(nil, names)
	return otherwise(slices.Concat(claims, plugins), text, names, unknown)
}
