package parity

// intended are the lines of a comparison that may differ, with the reason why.
var intended = []struct{ stories, line, reason string }{
	{"hostpath|nokeyvolume|nosecretvolume|novolume", `^\+ Normal Pulled spec.containers\{app\}`, "images are pulled beside the mounting of volumes"},
	{"hostpath|nokeyvolume|nosecretvolume|novolume", `^[+-]   status: "(True|False)"$`, "the sandbox is created beside the mounting of volumes"},
	{"hostpath|nokeyvolume|nosecretvolume|novolume", `^\+ (podIP: ADDRESS|podIPs:|- ip: ADDRESS)$`, "the sandbox is created beside the mounting of volumes"},
	{"initfailed|initloop|illsidecar", `^\+ Normal Pulled spec.containers\{app\}`, "the images of all containers are pulled side by side"},
	{"novolume|nopull", `^-   message: 'containers with unready status: \[app\]'$`, "the conditions of a pod that has ended follow from its final phase"},
	{"novolume|nopull", `^[+-]   reason: (ContainersNotReady|PodFailed)$`, "the conditions of a pod that has ended follow from its final phase"},
	{"crash", `^[+-]   restartCount: \d$`, "the next start falls before the deletion or after it"},
	{"outofcpu|selector|sysctl", `^\+ (conditions:|- lastProbeTime: null|  lastTransitionTime: "TIME"|  observedGeneration: 1|  reason: PodFailed|  status: "(True|False)"|  type: .*)$`, "a rejected pod has its conditions"},
	{"ill", `^[+-] Normal Killing `, "the kubelet stops the whole pod where its last container isn't started again; kubelot says why, and keeps to the probe's own grace period"},
	{"unreadytcp", `^[+-] Warning Unhealthy .* i/o timeout$`, "a busy machine may not refuse a connection within the probe's second"},
	{"unreadyhttp", `^[+-] Warning Unhealthy .*Client.Timeout exceeded while awaiting headers\)$`, "the same"},
	{"unready|unreadyslow", `^[+-] Warning Unhealthy .* probe failed: $`, "a command that ends with its container has failed without a word"},
	{"ill|illsidecar|probed|unready|unreadyslow|unstarted", `^- Warning Unhealthy .* context canceled$`, "the kubelet's own end shows as an error of the probes under way"},
	{"node", `^-   (declaredFeatures:|- (ExtendWebSocketsToKubelet|InPlacePodLevelResourcesVerticalScaling|InPlacePodVerticalScalingInitContainers|RestartAllContainersOnContainerExits))$`, "features that kubelot has not declare themselves (KEP-5328)"},
	{"novolume|nosecretvolume|nokeyvolume", `^- Warning FailedMount .* not registered$`, "the kubelet forgets a deleted pod's objects while it still mounts them"},
	{"outofcpu|selector|sysctl", `^\+ (hostIP: ADDRESS|hostIPs:|- ip: ADDRESS)$`, "a rejected pod has its node's address"},
}
