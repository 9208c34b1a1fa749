package parity

// intended are the lines of a comparison that may differ, with the reason why.
var intended = []struct{ stories, line, reason string }{
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ Normal Pulled spec.containers\{app\}`, "images are pulled beside the mounting of volumes"},
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^[+-]   status: "(True|False)"$`, "the sandbox is created beside the mounting of volumes"},
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ (podIP: ADDRESS|podIPs:|- ip: ADDRESS)$`, "the sandbox is created beside the mounting of volumes"},
	{"initfailed|initloop|illsidecar|nosuchtaginit|longfqdn|nohandler|noimagevolume", `^\+ Normal Pulled spec.containers\{app\}`, "the images of all containers are pulled side by side"},
	{"novolume|nopull", `^-   message: 'containers with unready status: \[app\]'$`, "the conditions of a pod that has ended follow from its final phase"},
	{"novolume|nopull", `^[+-]   reason: (ContainersNotReady|PodFailed)$`, "the conditions of a pod that has ended follow from its final phase"},
	{"crash", `^[+-]   restartCount: \d$`, "the next start falls before the deletion or after it"},
	{"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused", `^\+ (conditions:|- lastProbeTime: null|  lastTransitionTime: "TIME"|  observedGeneration: 1|  reason: (PodFailed|UnknownContainerStatuses)|  status: "(True|False)"|  type: .*)$`, "a rejected pod has its conditions"},
	{"ill", `^[+-] Normal Killing `, "the kubelet stops the whole pod where its last container isn't started again; kubelot says why, and keeps to the probe's own grace period"},
	{"unreadytcp", `^[+-] Warning Unhealthy .* i/o timeout$`, "a busy machine may not refuse a connection within the probe's second"},
	{"unreadyhttp", `^[+-] Warning Unhealthy .*Client.Timeout exceeded while awaiting headers\)$`, "the same"},
	{"unready|unreadyslow", `^[+-] Warning Unhealthy .* probe failed: $`, "a command that ends with its container has failed without a word"},
	{"ill|illsidecar|probed|unready|unreadyslow|unstarted", `^- Warning Unhealthy .* context canceled$`, "the kubelet's own end shows as an error of the probes under way"},
	{"node", `^-   (- (InPlacePodLevelResourcesVerticalScaling|InPlacePodVerticalScalingInitContainers|RestartAllContainersOnContainerExits))$`, "features that kubelot has not declare themselves (KEP-5328)"},
	{"novolume|nosecretvolume|nokeyvolume", `^- Warning FailedMount .* not registered$`, "the kubelet forgets a deleted pod's objects while it still mounts them"},
	{"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused", `^\+ (hostIP: ADDRESS|hostIPs:|- ip: ADDRESS)$`, "a rejected pod has its node's address"},
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume|longfqdn|nohandler", `^[+-] /kubepods/`, "the pod's cgroup is created with its sandbox, the kubelet's before everything else"},
	{"envfilebad", `^([+-]       message: |\+         enclosed in single quotes'|[+-] Warning Failed .* Error: )(couldn't parse env file|'couldn''t parse env file)?`, "kubelot says which line of which file is wrong"},
	{"outofdisk", `capacity: \d+`, "the kubelet reckons the eviction threshold with 24 bits, which loses some bytes"},
	{"imagevolume", `^- Normal Pulled  .* already present on machine`, "the kubelet looks for the volume's image at each of its looks at the pod"},
	{"crash|poststart|initloop|nocommand", `^[+-] ( +restartCount: \d| +message: back-off \d+s restarting .*|attempt: \d|log_path: .*|  attempt: \d|  io.kubernetes.container.restartCount: "\d")$`, "the next start falls before the look or after it"},
	{"preempted", `^[+-] ( |- |phase: |message: |reason: |conditions:)`, "the kubelet takes a pod that it preempts away under its containers, and what it says of them varies; e2e TestTaintedNode has kubelot's"},
	{"preempted", `^- Warning ExceededGracePeriod `, "the kubelet gives it no time"},
	{"probed", `^[+-] Warning Unhealthy .* timed out after 1s$`, "a busy machine may not run a command within the probe's second"},
}
