package diagnose

import (
	"regexp"
	"slices"
)

// sandboxes are the errors of pod sandboxes: the pause container and the pod's network.
var sandboxes = []rule{
	{
		"runtime-away", `dial unix \S*(?:containerd|crio)\S*\.sock`,
		"the container runtime isn't there", "the runtime to be started", "systemctl status containerd on this node",
	},
	{
		"cni-addresses", `(?i)no IP addresses available|no available IP|failed to allocate for range|address.*exhausted`,
		"no address is left for pods on this node", "a pod of this node to end",
		"end pods on this node, or enlarge its podCIDR; addresses of pods that are gone are in /var/lib/cni/networks",
	},
	{
		"cni-plugin-missing", `failed to find plugin "([^"]+)" in path \[?([^\]]*)`,
		`the network plugin "{1}" isn't installed on this node`, "the network's DaemonSet to install it",
		"is the network's DaemonSet running on this node? It puts {1} into {2}",
	},
	{
		"cni-bridge-address", `"([^"]+)" already has an IP address different from`,
		`the bridge {1} has an address of an earlier network configuration`, "",
		"drain this node, then ip link delete {1}",
	},
	{
		"cni-daemon-away", `(?:dial unix (\S+?):|Unable to connect to \S+ daemon|connect: no such file or directory)`,
		"the network's daemon on this node doesn't answer", "the network's DaemonSet on this node",
		"kubectl get pods -n kube-system -o wide --field-selector spec.nodeName=NODE, and its log",
	},
	{
		"host-port", `(?:hostport|host port|HostPort).*?(\d+)|bind: address already in use`,
		"its host port {1} is in use on this node", "the port to be free",
		"ss -ltnp on this node shows who has it; correct hostPort: in the spec",
	},
	{
		"cni-fails", `plugin type="([^"]+)" failed \((?:add|ADD)\): (.*)`,
		`the network plugin "{1}" fails: {2}`, "the network plugin",
		"see the log of the network's DaemonSet on this node, and /etc/cni/net.d",
	},
	{
		"cni-fails", `[Ff]ailed to set ?up (?:sandbox )?network(?: for sandbox "[^"]*")?:? ?(.*)`,
		"its network can't be set up: {1}", "the network plugin",
		"see the log of the network's DaemonSet on this node, and /etc/cni/net.d",
	},
	{
		"sandbox-image",
		`failed to (?:get|start|pull) (?:sandbox )?image "?([^":]+[^"\s]*)"?.*|unable to pull image: .*docker://(\S+?): `,
		"the image of sandboxes, {1}{2}, can't be had", "that image",
		"crictl pull {1} on this node, or set sandbox in the runtime's configuration (pinned_images)",
	},
	{
		"runtime-handler", `no runtime for "([^"]+)" is configured|unknown runtime handler "?([^"\s]+)|` +
			`failed to find runtime handler (\S+) from runtime list`,
		`the runtime on this node has no handler "{1}{2}{3}", which the pod's RuntimeClass names`, "",
		"configure the handler in /etc/containerd/config.toml on this node, or choose nodes that have it",
	},
	{
		"runtime-class", `RuntimeClass "([^"]+)" not found|runtimeclass.* "([^"]+)" not found`,
		`the RuntimeClass "{1}{2}" doesn't exist`, `the RuntimeClass`,
		"kubectl get runtimeclass; create it, or correct runtimeClassName in the spec",
	},
	{
		"user-namespaces", `does not support user namespaces|asks for a user namespace`,
		"the runtime on this node makes no user namespaces, which the pod asks for (hostUsers: false)", "",
		"containerd 2.0 with runc 1.2 can; or leave out hostUsers: false",
	},
	{
		"name-reserved", `name "[^"]*" is reserved for`,
		"the runtime still works on an earlier call for the same sandbox", "the earlier call's end",
		"if that lasts for minutes: crictl pods, and the runtime's log: journalctl -u containerd",
	},
	{
		"memory-limit-too-low", `container init was OOM-killed|memory limit (?:\d+ )?too low`,
		"the memory limit of the pod is too low to even begin", "", "raise resources.limits.memory in the spec",
	},
	{
		"container-init-ends", `procReady not received`,
		"the runtime's own process in its sandbox ended before it began, as under too low a limit of processes or memory", "",
		"raise podPidsLimit in kubelot's configuration, or resources.limits.memory in the spec",
	},
	{
		"cgroup-busy", `cgroup.*busy`,
		"a process of it is left that doesn't end", "the process to end",
		"ps axo stat,pid,args on this node; a process in state D waits for a disk and can't be killed",
	},
	{
		"cgroup", `cgroup.*?: (.*)`,
		"its cgroup can't be made: {1}", "", "kubelot doctor; kubelot and the runtime must use the same cgroup driver",
	},
	{
		"sysctl", `(?:write|set|sysctl) (?:to /proc/sys/)?(?:sysctl )?(?:key )?"?((?:kernel|net|fs|vm|user)[./][A-Za-z0-9_./-]+)`,
		"the kernel parameter {1} can't be set", "", "correct securityContext.sysctls in the spec",
	},
	{
		"disk-full", `no space left on device`,
		"the disk of this node is full", "room on the disk",
		"df -h and df -i on this node; kubelot gc --dry-run --disk-pressure",
	},
}

// runtimes are the errors of a runtime that gives no answer.
var runtimes = []rule{
	{
		"runtime-slow", `context deadline exceeded|DeadlineExceeded|gave no answer (?:in time|within)`,
		"the container runtime doesn't answer in time", "the runtime's answer",
		"crictl info and uptime on this node; then the runtime's log: journalctl -u containerd",
	},
	{
		"runtime-away", `connect: connection refused|code = Unavailable|connect: no such file or directory`,
		"the container runtime isn't there", "the runtime to be started", "systemctl status containerd on this node",
	},
}

// Sandbox is why a pod's sandbox can't be made, or can't be stopped.
func Sandbox(text string, names Names) Finding {
	unknown := rule{
		"sandbox-fails", "", "", "the next try to succeed", "see the runtime's log on this node: journalctl -u containerd",
	}.finding(nil, names)
	// The pod's own name is no part of what went wrong.
	text = regexp.MustCompile(`^CRI \w+ \S+ attempt \d+: `).ReplaceAllString(text, "")
	return otherwise(slices.Concat(sandboxes, runtimes), text, names, unknown)
}

// Runtime is why the container runtime gives no answer.
func Runtime(text string) Finding {
	unknown := Finding{
		Kind: "runtime-fails", Waits: "the container runtime",
		Do: "see the runtime's log on this node: journalctl -u containerd",
	}
	return otherwise(runtimes, text, Names{}, unknown)
}
