package diagnose

import "strings"

// volumes are the errors of volumes that can't be mounted.
var volumes = []rule{
	{
		"volume-secret-missing", `(?i)secrets? "([^"]+)" not found`,
		`the Secret "{1}" doesn't exist in the namespace {ns}`, `the Secret "{1}"; it goes on at once when that exists`,
		"create what is missing: kubectl create secret generic {1} -n {ns} --from-literal=KEY=VALUE",
	},
	{
		"volume-configmap-missing", `(?i)configmaps? "([^"]+)" not found`,
		`the ConfigMap "{1}" doesn't exist in the namespace {ns}`, `the ConfigMap "{1}"; it goes on at once when that exists`,
		"create what is missing: kubectl create configmap {1} -n {ns} --from-literal=KEY=VALUE",
	},
	{
		"volume-key-missing", `references non-existent (secret|config) key: (\S+)`,
		`the {1} that it is made from has no key "{2}"`, `the key "{2}"`,
		"add the key {2}, or correct items: of the volume {volume} in the spec",
	},
	{
		"claim-missing", `persistentvolumeclaims? "([^"]+)" not found`,
		`the PersistentVolumeClaim "{1}" doesn't exist in the namespace {ns}`, `the claim "{1}"`,
		"create what is missing: kubectl get pvc -n {ns}; apply the claim {1}",
	},
	{
		"claim-unbound", `error processing PVC ([^/\s]+)/([^:\s]+): PVC is not bound|PVC is not bound`,
		`its claim "{2}" isn't bound to a volume`, "the claim to be bound",
		"kubectl describe pvc {2} -n {ns} shows what its provisioner says",
	},
	{
		"claim-deleted", `PVC is being deleted`,
		"its claim is being deleted", "", "delete the pod and create the claim anew: kubectl get pvc -n {ns}",
	},
	{
		"volume-object-missing", `failed to fetch PV (\S+) from API server.*not found|found PV object (\S+) but`,
		`the PersistentVolume {1}{2} that its claim names isn't there, or is another claim's`, "",
		"kubectl get pv {1}{2}; delete the claim and create it anew",
	},
	{
		"iscsi-attach-waits", `volume kubernetes\.io/iscsi/\S+ is not in the Node's (status\.\w+) yet`,
		"it isn't in the Node's {1} yet", "the node's status to be written, and kube-controller-manager to attach it",
		"kubelot why node; kubectl get node -o yaml has the status; then the log of kube-controller-manager",
	},
	{
		"fc-attach-waits", `volume kubernetes\.io/fc/.+ is not in the Node's (status\.\w+) yet`,
		"it isn't in the Node's {1} yet", "the node's status to be written, and kube-controller-manager to attach it",
		"kubelot why node; kubectl get node -o yaml has the status; then the log of kube-controller-manager",
	},
	{
		"volume-attach-node", `status\.volumesInUse yet \(driver (\S+), since (.+)\)`,
		"the API server hasn't heard since {2} that this node uses it, so the driver {1} may not attach it",
		"the node's status to be written", "kubelot why node; kubectl get node -o yaml has status.volumesInUse",
	},
	{
		"volume-attach-controller", `has not made volume attachment .*\(driver (\S+), since (.+)\)`,
		"nobody has had the driver {1} attach it to this node since {2}",
		"the attach-detach controller of kube-controller-manager",
		"kubectl get volumeattachment, and the log of kube-controller-manager",
	},
	{
		"volume-attach-controller", `status\.volumesAttached yet \(driver (\S+), since (.+)\)`,
		"the driver {1} has attached it, and the Node's status has not said so since {2}",
		"the attach-detach controller of kube-controller-manager",
		"kubectl get node -o yaml has status.volumesAttached; then the log of kube-controller-manager",
	},
	{
		"volume-attach-waits", `is not attached for volume attachment .*\(driver (\S+), since (.+)\)`,
		"the driver {1} hasn't attached it to this node since {2}", "the driver's external-attacher",
		"kubectl describe volumeattachment, and the log of the driver's controller",
	},
	{
		"volume-attach-waits",
		`is not attached for volume attachment|has not made volume attachment|status\.volumesInUse yet`,
		"it isn't attached to this node yet",
		"the attach-detach controller of kube-controller-manager, and the driver's attacher",
		"kubectl get volumeattachment, and the log of the driver's controller",
	},
	{
		"volume-in-use",
		`ReadWriteOncePod access mode and is already in use|Multi-Attach error|is already exclusively attached`,
		"another pod uses it, and only one may", "the other pod to end",
		"kubectl get pods -A -o wide with the same claim; delete the one that shouldn't have it",
	},
	{
		"volume-limit", `can have no more volumes of the driver|volume limit|[Mm]ax volume count`,
		"this node can have no more volumes of its driver", "a volume to leave this node", "choose another node for the pod",
	},
	{
		"csi-driver-missing", `driver name (\S+) not found in the list of registered CSI drivers`,
		`the CSI driver "{1}" isn't registered on this node`, "the driver's DaemonSet on this node",
		"kubectl get csinode, and the pod of the driver's DaemonSet on this node",
	},
	{
		"csi-driver-not-installed", `not supported by driver (\S+) \(no CSIDriver object\)`,
		`the CSI driver "{1}" isn't installed in the cluster: it has no CSIDriver object`, "the driver's CSIDriver object",
		"install the driver (kubectl get csidriver), or correct its name in the volume {volume}",
	},
	{
		"csi-volume-mode", `volume mode "(\w+)" not supported by driver (\S+) \(only supports (.*)\)`,
		`the CSI driver "{2}" makes no volumes of the mode {1}, only {3}`, "",
		"use a PersistentVolumeClaim of the driver, or a driver that makes such volumes",
	},
	{
		"csi-driver-away", `(?:dial unix|connection error|code = Unavailable).*`,
		"its CSI driver doesn't answer on this node", "the driver's pod on this node",
		"see the pod of the driver's DaemonSet on this node, and its log",
	},
	{
		"volume-other-node", `no matching NodeSelectorTerms|NodeAffinity check failed`,
		"it can't be used on this node: its nodeAffinity names others", "",
		"delete the pod, so that the scheduler chooses one of them: kubectl get pv -o yaml",
	},
	{
		"volume-unsupported", `does not mount volumes of this kind yet`,
		"kubelot doesn't mount volumes of this kind", "", "run the pod on a node with the kubelet, or use a CSI driver",
	},
	{
		"local-path-missing", `path "([^"]+)" does not exist`,
		`the path "{1}" of its PersistentVolume isn't on this node`, "that path",
		"make the directory on this node, mount the disk there, or correct local.path: kubectl get pv -o yaml",
	},
	{
		"huge-pages", `medium (HugePages\S*): (.*)`,
		"its medium is {1}, but {2}", "",
		"give a container resources.limits.hugepages-2Mi (or -1Gi), or correct emptyDir.medium of the volume {volume}",
	},
	{
		"hostpath-missing", `hostPath type check failed: (.+?) is not a ([a-z ]+?): .*no such file`,
		`"{1}" isn't on this node, and must be a {2}`, "",
		"create it on this node, or correct hostPath.path of the volume {volume}",
	},
	{
		"hostpath-type", `hostPath type check failed: (.+?) is not a ([a-z ]+?)(?:: (.*))?$`,
		`"{1}" on this node is not a {2}`, "", "create it on this node, or correct hostPath.type of the volume {volume}",
	},
	{
		"volume-mode", `has volumeMode (\w+), but is specified in (\w+)`,
		"it is of the mode {1}, and the spec has it in {2}", "",
		"use volumeDevices: for Block, volumeMounts: for Filesystem",
	},
	{
		"nfs-client-missing", `this node has no mount\.nfs`,
		"this node has no NFS client", "",
		"install nfs-common (Debian, Ubuntu), nfs-utils (Red Hat) or nfs-client (SUSE) on this node",
	},
	{
		"iscsi-client-missing", `this node has no iscsiadm`,
		"this node has no iSCSI client", "",
		"install open-iscsi (Debian, Ubuntu, SUSE) or iscsi-initiator-utils (Red Hat) on this node",
	},
	{
		"iscsi-denied", `iscsiadm .*exit status 24`,
		"its iSCSI target doesn't let this node log in", "",
		"does the secret of the volume {volume} have the name and password of CHAP? see the target's access list",
	},
	{
		"iscsi-no-disk", `Timed out waiting for device at path (\S+) after`,
		"its iSCSI target doesn't show the disk {1}", "the disk",
		"has the target this LUN, and has this node's initiator access to it? iscsiadm -m session -P 3 on this node",
	},
	{
		"fc-no-disk", `no fc disk found: (\S+) shows none`,
		"the fibre channel fabric shows this node no disk {1}", "the disk",
		"may this node's adapters see the disk's target, and has that this LUN? cat /sys/class/fc_host/*/port_name on this " +
			"node has their names",
	},
	{
		"selinux-labels-differ", `multiple SELinux labels found: (\S+): give`,
		"its containers want it with different SELinux labels, {1}", "",
		"give its containers the same seLinuxOptions, or the pod seLinuxChangePolicy: Recursive",
	},
	{
		"selinux-pods-differ", `conflicting SELinux labels of volume \S+: ("[^"]*" and "[^"]*")`,
		"another pod of this node has it with another SELinux label, {1}", "the end of that pod",
		"give the pods that share it the same seLinuxOptions, or all of them seLinuxChangePolicy: Recursive",
	},
	{
		"selinux-label-stays", `waiting for unmount of volume "\S+", because it is already mounted to a different pod with`,
		"it is still mounted for another pod of this node, with another SELinux label", "the end of that pod",
		"if no pod that uses it ends: give them the same seLinuxOptions, or all of them seLinuxChangePolicy: Recursive",
	},
	{
		"iscsi-slow", `iscsiadm .*-p (\S+) .*has not ended since (.+)$`,
		"the iSCSI target at {1} hasn't answered since {2}", "the target's answer; after 90 seconds it is asked again",
		"is the target up, and reachable from this node? systemctl status iscsid",
	},
	{
		"nfs-slow", `mount -t nfs (\S+) has not ended since (.+)$`,
		"the server of {1} hasn't answered since {2}", "the server's answer; after 2 minutes it is asked again",
		"is the server up, and reachable from this node? showmount -e SERVER",
	},
	{
		"filesystem-tools", `type:\("([^"]+)"\) .*executable file not found`,
		"it has no file system yet, and this node has no mkfs.{1} to make one", "",
		"install mkfs.{1} on this node, or correct fsType of the PersistentVolume",
	},
	{
		"filesystem-type", `unknown filesystem type '?([^'\s]+)|wrong fs type|No such device`,
		"this node's kernel can't mount its file system {1}", "", "modprobe the file system on this node, or correct fsType",
	},
	{
		"filesystem-damaged", `(?i)structure needs cleaning|fsck|has UNEXPECTED INCONSISTENCY|bad superblock`,
		"its file system is damaged", "", "repair it by hand: fsck of the device, when no pod uses it",
	},
	{
		"volume-disk-full", `no space left on device|disk quota exceeded`,
		"there is no room for it on this node's disk", "room on the disk",
		"df -h and df -i on this node; kubelot gc --dry-run --disk-pressure",
	},
	{
		"storage-timeout", `(?i)connection timed out|no route to host|i/o timeout`,
		"this node doesn't reach its storage", "the storage's answer",
		"is the storage's server up, and reachable from this node?",
	},
	{
		"storage-denied", `(?i)access denied by server|permission denied|PermissionDenied|operation not permitted`,
		"its storage doesn't let this node have it", "", "see the storage's exports or permissions for this node",
	},
	{
		"filesystem-hangs",
		`has not come back; a filesystem below it does not answer|waits in the kernel for a server or a disk`,
		"a file system below it doesn't answer, and the kernel waits for it", "the file system's answer",
		"bring its server back, or umount -f it on this node",
	},
	{
		"csi-other-pod-slow", `the CSI driver (\S+) has not answered (\w+) since (.+), for the pod (\S+)$`,
		"its CSI driver {1} has not answered {2} for the pod {4} since {3}, and does one thing at a time with a volume",
		"the driver's answer; after 2 minutes it is asked again",
		"see the log of the driver's pod on this node, and restart it if it hangs; kubelot why {4}",
	},
	{
		"csi-unstage-slow", `the CSI driver (\S+) has not answered NodeUnstageVolume since (.+)$`,
		"the pod that had it before has ended, but its CSI driver {1} has not answered NodeUnstageVolume since {2}",
		"the driver's answer; after 2 minutes it is asked again",
		"see the log of the driver's pod on this node, and restart it if it hangs",
	},
	{
		"csi-call-slow", `the CSI driver (\S+) has not answered (\w+) since (.+)$`,
		"its CSI driver {1} has not answered {2} since {3}", "the driver's answer; after 2 minutes it is asked again",
		"see the log of the driver's pod on this node, and restart it if it hangs",
	},
	{
		"volume-slow", `the (\w+) takes longer than (\S+)`,
		"its {1} takes longer than {2}", "its end",
		"if it has many files to give to the fsGroup: fsGroupChangePolicy: OnRootMismatch in the spec",
	},
	{
		"csi-slow", `has not answered for (\S+)|DeadlineExceeded|deadline exceeded`,
		"its driver, or the API server, doesn't answer in time", "the answer", "see the log of the driver's pod on this node",
	},
	{
		"service-account-token", `failed to fetch token of service account "([^"]+)"(.*)`,
		`the API server gives no token of the service account "{1}"`, "the token",
		"kubectl get serviceaccount {1} -n {ns}",
	},
	{
		"forbidden", `is forbidden: (.*)`,
		"the API server doesn't let this node read what it is made from: {1}", "",
		"does the object belong to a pod of this node? kubectl describe pod {pod} -n {ns}",
	},
}

// Volume is why a volume can't be mounted.
func Volume(text string, names Names) Finding {
	unknown := rule{
		"volume-fails", "", "", "the next try to succeed",
		"see the volume {volume} in the spec, and the volume daemon's log: journalctl -u kubelot-volume",
	}.finding(nil, names)
	f := otherwise(volumes, text, names, unknown)
	if f.Kind == "claim-unbound" && !strings.Contains(text, "error processing PVC ") {
		f.Why, f.Do = "its claim isn't bound to a volume", "kubectl get pvc -n "+names.Namespace+" shows which are Pending"
	}
	return f
}

// unmounts are the errors of volumes that can't be unmounted.
var unmounts = []rule{
	{
		"unmount-busy", `(?i)device or resource busy|device is busy|target is busy|still in use`,
		"something on this node still uses it", "that to end",
		"fuser -vm, or lsof, on the mount below /var/lib/kubelet/pods on this node shows the process",
	},
	{
		"unmount-driver-missing", `driver name (\S+) not found in the list of registered CSI drivers`,
		`its CSI driver "{1}" is gone from this node, and only the driver can unmount it`,
		"the driver's DaemonSet on this node",
		"bring the driver's pod back to this node; kubelot doesn't remove what it hasn't mounted",
	},
	{
		"unmount-driver-slow", `the CSI driver (\S+) has not answered (\w+) since (.+)$`,
		"its CSI driver {1} has not answered {2} since {3}", "the driver's answer; after 2 minutes it is asked again",
		"see the log of the driver's pod on this node, and restart it if it hangs",
	},
	{
		"unmount-slow", `umount \S+ has not ended since (.+)$`,
		"its server hasn't taken since {1} what is still to be written", "the server's answer; after a minute it is forced",
		"bring its server back; by force what wasn't written is lost",
	},
	{
		"unmount-hangs",
		`has not come back; a filesystem below it does not answer|stale (?:NFS )?file handle|` +
			`waits in the kernel for a server or a disk`,
		"its file system doesn't answer", "the file system's answer", "bring its server back, or umount -f it on this node",
	},
	{
		"unmount-remains", `remove the emptied directory|never with its content|unmount it by hand`,
		"files of it are left that kubelot must not remove", "",
		"look at what is left below /var/lib/kubelet/pods on this node, and remove it by hand",
	},
}

// Unmount is why a volume can't be unmounted.
func Unmount(text string, names Names) Finding {
	unknown := rule{
		"unmount-fails", "", "", "the next try to succeed", "see the volume daemon's log: journalctl -u kubelot-volume",
	}.finding(nil, names)
	return otherwise(unmounts, text, names, unknown)
}
