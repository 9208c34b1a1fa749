package health

import (
	"regexp"
	"slices"
	"strings"

	"kubelot.dev/cli/internal/why/diagnose"
)

// rule recognizes one cause in what a daemon says. {1} in the texts is the first group of the expression, {daemon} the
// daemon's name.
type rule struct {
	// daemon is whose message it is; empty for every daemon.
	daemon, match string
	cause, advice string
}

// unreadRuntime is how podsync begins what it says of a runtime that doesn't answer.
const unreadRuntime = "can't read the container runtime: "

// askRuntime are the daemons whose errors may be the container runtime's.
var askRuntime = []string{"gc", "pleg", "podsync", "stats"}

// explain is the cause of what a daemon says, and what to do.
func explain(daemon, message string) (cause, advice string) {
	if text, ok := strings.CutPrefix(message, unreadRuntime); ok {
		f := diagnose.Runtime(text)
		return f.Why, f.Do
	}
	for _, r := range rules {
		if r.daemon != "" && r.daemon != daemon {
			continue
		}
		if groups := regexp.MustCompile(r.match).FindStringSubmatch(message); groups != nil {
			pairs := []string{"{daemon}", daemon}
			if len(groups) > 1 {
				pairs = append(pairs, "{1}", groups[1])
			}
			fill := strings.NewReplacer(pairs...)
			return fill.Replace(r.cause), fill.Replace(r.advice)
		}
	}
	if f := diagnose.Runtime(message); slices.Contains(askRuntime, daemon) && f.Kind != "runtime-fails" {
		return f.Why, f.Do
	}
	if message == "" {
		return "the daemon doesn't say", Advice(daemon)
	}
	return diagnose.Innermost(message), Advice(daemon)
}

// rules are in the order in which they are tried: what has caused a message comes before what follows from it.
var rules = []rule{
	{
		"", `schema \d|schemas \d`,
		"two daemons are of releases too far apart: one can't read what the other writes on the bus",
		"bring all daemons to one release: kubelot upgrade VERSION",
	},
	{
		"", `^the changed configuration is not taken`,
		"the configuration on disk has a mistake, so that the daemon goes on with the one it has",
		"kubelot config check names the mistake; no daemon would start now",
	},
	{
		"", `no space left on device`,
		"a disk is full", "df -h; kubelot gc --dry-run --disk-pressure shows what can go",
	},
	{
		"", `read-only file system`,
		"a filesystem is mounted read-only, often after an error of its disk",
		"journalctl -k -p err; then mount -o remount,rw the filesystem that the message names",
	},
	// The API server.
	{
		"lease", `(?i)CertificateSigningRequest (\S+) waits`,
		"the node asks for its client certificate, and nobody has approved the request",
		"kubectl certificate approve {1}",
	},
	{
		"lease", `there is no valid client certificate`,
		"the node's client certificate is missing or has expired, and there is nothing to get a new one with",
		"kubeadm token create on a control plane, and a bootstrap kubeconfig with it: --bootstrap-kubeconfig",
	},
	{
		"lease", `requesting a client certificate`,
		"the node is about to get its client certificate from the API server", "wait a moment; kubectl get csr",
	},
	{
		"lease", `the Node was deleted`,
		"somebody has deleted the Node object, and lease registers it again if it may (registerNode)",
		"kubectl get node; who deleted it is in the audit log of the API server",
	},
	{
		"", `x509: certificate has expired or is not yet valid`,
		"a certificate between this node and the API server has expired, or the clock is wrong",
		"timedatectl; openssl x509 -noout -dates -in /var/lib/kubelet/pki/kubelet-client-current.pem",
	},
	{
		"", `x509: certificate signed by unknown authority`,
		"the kubeconfig's certificate authority isn't that of the API server",
		"compare certificate-authority-data of the node's kubeconfig with the cluster's CA",
	},
	{
		"", `\bUnauthorized\b|must be logged in`,
		"the API server doesn't accept the node's credentials: they have expired, or are of another cluster",
		"openssl x509 -noout -subject -dates -in /var/lib/kubelet/pki/kubelet-client-current.pem",
	},
	{
		"", `is forbidden: (.*)`,
		"the API server refuses this node: {1}",
		"the certificate must be for system:node:NAME of this very Node: see --hostname-override",
	},
	{
		"", `lookup (\S+?)(?: on \S+)?: no such host`,
		"this node finds no address of the API server {1} (DNS)", "getent hosts {1}; then /etc/resolv.conf",
	},
	{
		"", `dial tcp (\S+): connect: connection refused`,
		"nothing listens at {1}, where the API server should be: it is down, or the kubeconfig names another place",
		"curl -k https://{1}/healthz on this node; on a control plane: crictl ps -a --name kube-apiserver",
	},
	{
		"", `dial tcp (\S+): (?:connect: (?:no route to host|network is unreachable)|i/o timeout)`,
		"the API server {1} can't be reached from this node",
		"the firewall's rules; curl -k https://{1}/healthz on this node",
	},
	{
		"lease", `deadline exceeded|Client\.Timeout|connection reset|EOF$`,
		"the API server doesn't answer lease in time, or breaks off",
		"kubectl get --raw /readyz?verbose; the Node turns NotReady if this lasts; " + Advice("lease"),
	},
	{
		"status", `can't reach the API server, or it fails`,
		"the API server doesn't take pod statuses: it is away, overloaded, or refuses them",
		"kubectl get --raw /readyz?verbose; the pods go on running meanwhile; " + Advice("status"),
	},
	// The container runtime.
	{
		"pleg", `pleg was last seen active (\S+) ago`,
		"the container runtime answers, but hasn't listed its pods for {1}: it hangs, or the machine is too busy",
		"uptime; crictl ps; journalctl -u containerd; if it stays so: systemctl restart containerd",
	},
	{
		"pleg", `not all pods of the runtime have been read yet`,
		"pleg has just started and still reads the pods of the runtime", "wait a moment; then: crictl ps -a",
	},
	{
		"pleg", `containers of (\d+) pods can't be inspected`,
		"the runtime fails for single containers of {1} pods, and answers for the others",
		"kubelot tap --topic pleg.event --error --since 10m names them; crictl inspect CONTAINER",
	},
	{
		"probe", `exec probes? `,
		"the container runtime doesn't run the commands of exec probes, so that their last verdicts stay",
		"kubelot tap --topic probe.result --error --since 10m; journalctl -u containerd",
	},
	// One daemon waits for another.
	{
		"podsync", `waiting for the node's facts`,
		"podsync admits no pod before kubelot-lease and kubelot-stats have said what the node is",
		"see whether lease and stats are well in this list",
	},
	{
		"podsync", `pods wait for the Node as the API server has it`,
		"no pod is admitted before kubelot-lease has the Node of the API server",
		"see lease in this list; kubectl get node shows whether the Node is there",
	},
	{
		"podsync", `pods wait for the node's devices`,
		"no pod is admitted before kubelot-resource has said what devices and CPUs are free",
		"see resource in this list, or: systemctl start kubelot-resource",
	},
	{
		"podsync", `what an earlier run left on the bus`,
		"podsync can't read its own messages back from the bus", "journalctl -u kubelot-bus",
	},
	{
		"podsync", `cgroup`,
		"the cgroups of the node's pods can't be made",
		"kubelot and the runtime must use the same cgroup driver: kubelot config check; " + Advice("podsync"),
	},
	// The daemons' own.
	{
		"volume", `(\d+) volumes hang`,
		"the server of a network filesystem doesn't answer, and the kernel lets nobody cancel the call",
		"kubelot tap --topic volume.state --error --since 1h names them; umount -f ends it",
	},
	{
		"resource", `can't write what pods have to the state files`,
		"the state files of devices, CPUs and memory can't be written, so that pods wait that ask for them",
		"df -h /var/lib/kubelet; ls -l /var/lib/kubelet/*_state",
	},
	{
		"api", `address already in use`,
		"another process has the port: often a kubelet that still runs",
		"ss -ltnp 'sport = :10248 or sport = :10250'; systemctl status kubelet",
	},
	{
		"api", `can't serve healthz`,
		"the address of healthz (healthzBindAddress, healthzPort) can't be listened at", "kubelot config check",
	},
	{
		"gc", `a filesystem hangs`,
		"a filesystem doesn't answer, so that nobody sees whether it is full and evicts",
		"cat /proc/mounts; kubelot gc --dry-run --all; umount -f the one that hangs",
	},
	{
		"gc", `^(?:filesystems|collection of images|collection of containers|rotation of logs|records of images)`,
		"what gc should remove or rotate can't be: see the message", "kubelot gc --dry-run --all; " + Advice("gc"),
	},
	{
		"gc", `shutdown of the node`,
		"the machine's shutdown can't be delayed for the pods (shutdownGracePeriod)",
		"systemctl status systemd-logind; systemd-inhibit --list",
	},
	{
		"stats", `out-of-memory kills`,
		"the kernel's log can't be read (/dev/kmsg), so that kills for want of memory aren't reported",
		"systemctl cat kubelot-stats: it needs CAP_SYSLOG and /dev/kmsg",
	},
	{
		"stats", `leaving out figures`,
		"some figures of kubectl top and of eviction can't be read; the rest is there",
		"kubelot tap --topic health --since 1h; " + Advice("stats"),
	},
}
