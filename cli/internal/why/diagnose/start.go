package diagnose

import "slices"

// starts are the runtime's errors when it creates or starts a container.
var starts = []rule{
	{
		"command-not-found", `exec: "([^"]*)": executable file not found`,
		`the image has no program "{1}" in its PATH`, "",
		"correct command: in the spec of container {container}; crictl inspecti {image} shows the image's own",
	},
	{
		"command-not-found", `exec: "([^"]*)": stat [^:]*: no such file or directory`,
		`the image has no file "{1}", which it shall run`, "",
		"correct command: in the spec of container {container}, or mount what holds it",
	},
	{
		"command-not-executable", `exec: "([^"]*)":.*permission denied`,
		`it may not run "{1}": the file isn't executable for its user`, "",
		"chmod +x the file in the image, or correct runAsUser in the spec of container {container}",
	},
	{
		"command-is-directory", `exec: "([^"]*)":.*is a directory`,
		`"{1}", which it shall run, is a directory`, "",
		"correct command: in the spec of container {container}",
	},
	{
		"command-other-machine", `exec format error`,
		"its program is made for another kind of machine, or is a script without a #! line", "",
		"choose an image for this machine (uname -m on this node), or begin the script with #!/bin/sh",
	},
	{
		"interpreter-missing", `exec ([^:"]+): no such file or directory`,
		"the interpreter or the loader of {1} isn't in the image", "",
		"see the script's first line (a Windows line end counts as part of the name), or link the program statically",
	},
	{
		"working-directory", `chdir to cwd \("([^"]*)"\).*(?:no such file|permission denied|not a directory)|` +
			`container init: mkdir ([^:]+): not a directory|mkdir \S+/merged(/[^:]+): not a directory`,
		`it can't enter its working directory "{1}{2}{3}"`, "",
		"correct workingDir: in the spec of container {container}",
	},
	{
		"user-unknown", `unable to find (user|group) ([^:]+): (?:no matching entries|invalid)`,
		`the image knows no {1} "{2}"`, "",
		"use a number: securityContext.runAsUser in the spec of container {container}, or a USER that the image has",
	},
	{
		"user-unknown", `no (user|group)s found`,
		"the image doesn't know the {1} that its USER names", "",
		"set securityContext.runAsUser (and runAsGroup) in the spec of container {container}, or correct the image's USER",
	},
	{
		"mount-ids", "set MOUNT_ATTR_IDMAP on ([^:]+): |mount_setattr `([^`]+)`: Invalid argument",
		`this node's kernel can't map the user IDs of the filesystem of "{1}{2}", as a pod with hostUsers: false needs it`,
		"", "use a volume on a disk, or Linux 6.3 or later for a tmpfs; or leave out hostUsers: false",
	},
	{
		"mount-file-on-directory", `error mounting "([^"]*)" to rootfs at "([^"]*)".*not a directory`,
		`"{1}" can't be mounted at "{2}": one is a file, the other a directory`, "",
		"set subPath: in the volumeMounts of container {container}, or correct mountPath:",
	},
	{
		"mount-point-missing", `create mountpoint for (\S+) mount: .*no such file`,
		`the mount point "{1}" can't be made: nothing can be made in what it lies in`, "",
		"mount at another directory: mountPath: of container {container}",
	},
	{
		"mount-source-missing", `failed to fulfil mount request: open ([^:]+): no such file`,
		`"{1}", which is to be mounted, isn't there`, "",
		"correct the volume's path, or the subPath: of container {container}",
	},
	{
		"mount-source-missing", `error mounting "([^"]*)" to rootfs at "([^"]*)".*no such file`,
		`"{1}", which is to be mounted at "{2}", isn't there`, "",
		"correct the volume's path, or the subPath: of container {container}",
	},
	{
		"mount-on-read-only", `error mounting "[^"]*" to rootfs at "([^"]*)".*read-only file system`,
		`the mount point "{1}" can't be made: what it lies in is read-only`, "",
		"mount at a directory that the image has, or make the outer volume writable",
	},
	{
		"mount-fails", `error mounting "([^"]*)" to rootfs at "([^"]*)": (.*)`,
		`"{1}" can't be mounted at "{2}": {3}`, "",
		"see the volumes and volumeMounts of container {container} in the spec",
	},
	{
		"memory-limit-too-low", `container init was OOM-killed|memory limit (?:\d+ )?too low`,
		"its memory limit is too low to even begin", "",
		"raise resources.limits.memory of container {container}",
	},
	{
		"apparmor-profile", `apparmor.*?(?:profile not found|not found|unable to apply|no such file)`,
		"its AppArmor profile isn't loaded on this node", "the profile to be loaded",
		"apparmor_parser -r FILE on this node, or correct appArmorProfile: in the spec",
	},
	{
		"seccomp-profile", `seccomp.*(?:no such file|not found|cannot load)`,
		"its seccomp profile isn't on this node", "the profile to be put there",
		"put the profile below /var/lib/kubelet/seccomp on this node, or correct seccompProfile: in the spec",
	},
	{
		"device-missing", `unresolvable CDI devices? (\S+)`,
		"the device {1} isn't known on this node", "the device's driver",
		"see the device's driver on this node (ls /etc/cdi /var/run/cdi)",
	},
	{
		"device-missing", `(?:error gathering device information while adding custom device|stat device) "?([^":]+)`,
		"the device {1} isn't on this node", "", "correct the device's path, or choose a node that has it",
	},
	{
		"no-command", `no command specified`,
		"neither its spec nor its image says what to run", "", "set command: in the spec of container {container}",
	},
	{
		"name-reserved", `name "[^"]*" is reserved for`,
		"the runtime still works on an earlier call for the same container", "the earlier call's end",
		"if that lasts for minutes: crictl ps -a, and the runtime's log: journalctl -u containerd",
	},
	{
		"disk-full", `no space left on device`,
		"the disk of this node is full", "room on the disk",
		"df -h and df -i on this node; kubelot gc --dry-run --disk-pressure",
	},
	{
		"processes-exhausted", `[Rr]esource temporarily unavailable|cannot fork|can't fork`,
		"this node, or the pod's limit, allows no more processes", "processes to end",
		"cat /proc/sys/kernel/pid_max and podPidsLimit in kubelot's configuration",
	},
	{
		"container-init-ends", `procReady not received`,
		"the runtime's own process in it ended before the program began, as under too low a limit of processes or memory", "",
		"raise podPidsLimit in kubelot's configuration, or resources.limits.memory of container {container}",
	},
}

// Start is why the runtime doesn't create or start a container.
func Start(text string, names Names) Finding {
	unknown := rule{
		"runtime-refuses", "", "", "the next try to succeed",
		"see the runtime's log on this node: journalctl -u containerd",
	}.finding(nil, names)
	return otherwise(slices.Concat(starts, runtimes), text, names, unknown)
}

// configs are what podsync finds wrong before it asks the runtime.
var configs = []rule{
	{
		"device-not-ready", `make the devices of container "[^"]*" ready: (?:.*rpc failed with err: )?(?:rpc error: code = \w+ desc = )?(.*)`,
		"its devices can't be made ready: {1}", "the device plugin's next try",
		"see the log of the device plugin on this node",
	},
	{
		"secret-missing", `(?i)secrets? "([^"]+)" not found`,
		`the Secret "{1}" doesn't exist in the namespace {ns}`, `the Secret "{1}"`,
		"create what is missing: kubectl create secret generic {1} -n {ns} --from-literal=KEY=VALUE",
	},
	{
		"configmap-missing", `(?i)configmaps? "([^"]+)" not found`,
		`the ConfigMap "{1}" doesn't exist in the namespace {ns}`, `the ConfigMap "{1}"`,
		"create what is missing: kubectl create configmap {1} -n {ns} --from-literal=KEY=VALUE",
	},
	{
		"key-missing", `couldn't find key (\S+) in (ConfigMap|Secret) ([^/\s]+)/(\S+)`,
		`the {2} "{4}" has no key "{1}"`, `the key "{1}"`,
		"kubectl edit {2} {4} -n {3}, and add the key {1}; or correct the key in the spec of container {container}",
	},
	{
		"run-as-non-root", `runAsUser breaks non-root policy`,
		"its spec contradicts itself: runAsNonRoot: true and runAsUser: 0", "",
		"set securityContext.runAsUser of container {container} to a user other than 0",
	},
	{
		"run-as-non-root", `image has non-numeric user \(([^)]*)\)`,
		`it must not run as root (runAsNonRoot: true), and nobody can tell whether the image's user "{1}" is root`, "",
		"set securityContext.runAsUser of container {container} to the user's number",
	},
	{
		"run-as-non-root", `runAsNonRoot and image will run as root`,
		"it must not run as root (runAsNonRoot: true), and its image does", "",
		"set securityContext.runAsUser of container {container} to a user other than 0, or choose an image with another USER",
	},
	{
		"run-as-non-root", `runAsNonRoot and image has an invalid user id`,
		"it must not run as root (runAsNonRoot: true), and its image's user has no valid number", "",
		"set securityContext.runAsUser of container {container}",
	},
	{
		"services-unread", `services have not yet been read`,
		"kubelot hasn't read the Services yet, which go into its environment", "the API server's answer",
		"kubelot doctor; enableServiceLinks: false in the spec does without them",
	},
	{
		"no-api-server", `this node has no API server`,
		"it needs an object of the API server, and this node runs without one", "",
		"give the value in the pod's manifest",
	},
	{
		"subpath", `failed to prepare subPath for volumeMount "([^"]*)"(?:.*failed to prepare subPath)?[^:]*:? ?(.*)`,
		`the subPath of its volume "{1}" can't be used: {2}`, "",
		"correct subPath: in the volumeMounts of container {container}; it must not leave the volume",
	},
	{
		"env-file", `couldn't (?:read|parse) env file "([^"]+)" in volume "([^"]+)": (.*)`,
		`the file "{1}" of its volume {2}, which its environment comes from, can't be used: {3}`, "",
		"correct the file in the volume: an init container writes it",
	},
	{
		"env-file", `environment variable key "([^"]+)" not found in file "([^"]+)"`,
		`the file "{2}", which its environment comes from, has no key "{1}"`, "",
		"correct the file in the volume, which an init container writes, or the key in the spec of container {container}",
	},
	{
		"api-server-unreachable", `dial tcp|connection refused|gives no answer|has not answered|deadline exceeded|timed out`,
		"the API server doesn't answer, and it needs an object from there", "the API server's answer",
		"kubelot doctor; then whether this node reaches the API server",
	},
	{
		"forbidden", `is forbidden: (.*)`,
		"the API server doesn't let this node read what it needs: {1}", "",
		"does the pod run on this node by its spec.nodeName? kubectl auth can-i as system:node:NODE",
	},
}

// Config is why a container can't be configured.
func Config(text string, names Names) Finding {
	unknown := rule{
		"spec-unusable", "", "", "", "correct the spec of container {container}",
	}.finding(nil, names)
	return otherwise(configs, text, names, unknown)
}
