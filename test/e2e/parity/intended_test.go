package parity

import (
	"slices"
	"strings"
	"testing"
)

// difference is a line of a comparison that may differ, in the named stories or in all, with the reason why.
type difference struct{ stories, line, reason string }

// intended differences show each time the stories are told. An entry that nothing differed by is named in the log.
var intended = []difference{
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ Normal Pulled spec.containers\{app\}`, "images are pulled beside the mounting of volumes"},
	{"initfailed|initloop|illsidecar|nosuchtaginit|borrowedinit|longfqdn|nohandler|noimagevolume|borrowedvolume", `^\+ Normal Pulled spec.containers\{app\}`, "the images of all containers are pulled side by side"},
	{"novolume|nopull", `^-   message: 'containers with unready status: \[app\]'$`, "the conditions of a pod that has ended follow from its final phase"},
	{"novolume|nopull", `^[+-]   reason: (ContainersNotReady|PodFailed)$`, "the conditions of a pod that has ended follow from its final phase"},
	{"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused", `^\+ (conditions:|- lastProbeTime: null|  lastTransitionTime: "TIME"|  observedGeneration: 1|  reason: (PodFailed|UnknownContainerStatuses)|  status: "(True|False)"|  type: .*)$`, "a rejected pod has its conditions"},
	{"ill", `^[+-] Normal Killing `, "the kubelet stops the whole pod where its last container isn't started again; kubelot says why, and keeps to the probe's own grace period"},
	{"node", `^-   (- (InPlacePodLevelResourcesVerticalScaling|InPlacePodVerticalScalingInitContainers|RestartAllContainersOnContainerExits))$`, "features that kubelot has not declare themselves (KEP-5328)"},
	{"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused", `^\+ (hostIP: ADDRESS|hostIPs:|- ip: ADDRESS)$`, "a rejected pod has its node's address"},
	{"longfqdn|nohandler", `^[+-] /kubepods/`, "the pod's cgroup is created with its sandbox, the kubelet's before everything else"},
	{"envfilebad", `^([+-]       message: |\+         enclosed in single quotes'|[+-] Warning Failed .* Error: )(couldn't parse env file|'couldn''t parse env file)?`, "kubelot says which line of which file is wrong"},
	{"outofdisk", `capacity: \d+`, "the kubelet reckons the eviction threshold with 24 bits, which loses some bytes"},
	{"imagevolume", `^- Normal Pulled  .* already present on machine`, "the kubelet looks for the volume's image at each of its looks at the pod"},
}

// races show at some times only: by when the two agents act, by how busy the machine is, or by what the kubelet leaves open.
var races = []difference{
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^[+-]   status: "(True|False)"$`, "the sandbox is created beside the mounting of volumes"},
	{"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ (podIP: ADDRESS|podIPs:|- ip: ADDRESS)$`, "the sandbox is created beside the mounting of volumes"},
	{"unreadytcp", `^[+-] Warning Unhealthy .* i/o timeout$`, "a busy machine may not refuse a connection within the probe's second"},
	{"unreadyhttp", `^[+-] Warning Unhealthy .*Client.Timeout exceeded while awaiting headers\)$`, "the same"},
	{"unready|unreadyslow", `^[+-] Warning Unhealthy .* probe failed: $`, "a command that ends with its container has failed without a word"},
	{"ill|illsidecar|probed|unready|unreadyslow|unstarted", `^- Warning Unhealthy .* context canceled$`, "the kubelet's own end shows as an error of the probes under way"},
	{"novolume|nosecretvolume|nokeyvolume", `^- Warning FailedMount .* not registered$`, "the kubelet forgets a deleted pod's objects while it still mounts them"},
	{"crash|poststart|initloop|nocommand", `^[+-] ( +restartCount: \d| +message: back-off \d+s restarting .*|attempt: \d|log_path: .*|  attempt: \d|  io.kubernetes.container.restartCount: "\d")$`, "the next start falls before the look or after it"},
	{"crash|poststart|initloop|nocommand", `^[+-] Normal Killing `, "the container may run at the deletion"},
	{"preempted", `^[+-] ( |- |phase: |message: |reason: |conditions:|resources:)`, "the kubelet takes a pod that it preempts away under its containers, and what it says of them varies; e2e TestTaintedNode has kubelot's"},
	{"preempted", `^- Warning ExceededGracePeriod `, "the kubelet gives it no time"},
	{"dnsmore", `^[+-] (  - timeout|options .*)$`, "the kubelet gives the resolver's options in any order"},
	{"digest|tagdigest", `^[+-]   imageID: OPEN/(tag)?digest@sha256:[0-9a-f]+$`, "the same image under two names, of which the runtime tells one"},
	{"", `^(-   user: \{\}|\+ +(user:|linux:|gid: 0|supplementalGroups:|- 0|uid: 0))$`, "the kubelet's first status of a container may be from before the runtime tells its user"},
	{"poststarthttp", `^[+-]       exitCode: (2|137|143)$`, "the hook fails at once, when the container may not ignore SIGTERM yet"},
	{"nopull", `^[+-] +(reason: (ErrImagePull|ImagePullBackOff)$|message: .*(Back-off pulling|failed to pull) )`, "the pod may be deleted between two attempts or at one"},
	{"env|extended|tiny", `^(\+     (cpu|ephemeral-storage|example.com/thing): .*|\+   (limits|requests):|\+ resources:|- resources: \{\})$`, "when the kubelet looks at a running pod again, it tells only of what the pod's cgroup can show"},
	{"", `^- Warning FailedMount .*(failed to sync (configmap|secret) cache: timed out waiting for the condition|no relationship found between node .* and this object)$`, "the kubelet tries once what it has no answer to yet, and says so"},
}

// TestDifferencesAreOfStories holds the names in both lists to the stories that there are.
func TestDifferencesAreOfStories(t *testing.T) {
	for _, d := range slices.Concat(intended, races) {
		for name := range strings.SplitSeq(d.stories, "|") {
			if name != "" && name != "node" && !slices.ContainsFunc(stories, func(s story) bool { return s.name == name }) {
				t.Errorf("there is no story %q, which may differ by %s", name, d.line)
			}
		}
	}
}
