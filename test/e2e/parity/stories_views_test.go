package parity

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// properties are the objects that the stories' pods name.
const properties = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, size: "3", "dotted.name-x": strange}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Secret
metadata: {name: old}
type: kubernetes.io/dockercfg
stringData: {.dockercfg: '{"$PRIVATE": {"username": "somebody", "password": "pass:word"}}'}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: puller}
imagePullSecrets: [{name: right}]
---
apiVersion: v1
kind: Service
metadata: {name: data-base}
spec: {selector: {app: none}, ports: [{name: sql, port: 5432}, {name: web, port: 80, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: none}, ports: [{port: 80}]}
`

const allFields = `
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['team']"}}}
    - {name: NOLABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['none']"}}}
    - {name: ANNOTATION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: HOST_IPS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
`

const allResources = `
    - {name: LCPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: RCPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: LMEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: RMEM, valueFrom: {resourceFieldRef: {resource: requests.memory}}}
    - {name: LDISK, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage, divisor: 1Gi}}}
    - {name: RDISK, valueFrom: {resourceFieldRef: {resource: requests.ephemeral-storage}}}
`

const oneApp = "  containers:\n  - name: app\n    image: busybox:1.36\n    " + forever + "\n"

// secured is a pod with a security context of its own and its container's.
func secured(pod, container string) string {
	return "  securityContext: {" + pod + "}\n" + app(forever+", securityContext: {"+container+"}")
}

func sized(resources, more string) string {
	return more + app(forever+", resources: {"+resources+"}")
}

const process = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/1/status; id; touch /x 2>&1; ulimit -n"

var viewStories = []story{
	{name: "env", meta: "  labels: {team: blue}\n  annotations: {note: hello}\n", spec: "  hostname: given\n  subdomain: sub\n" + oneApp + `
    resources: {requests: {cpu: 20m, memory: 16Mi, ephemeral-storage: 1Mi}, limits: {cpu: 500m, memory: 32Mi, ephemeral-storage: 1Gi}}
    envFrom:
    - configMapRef: {name: settings}
    - {prefix: S_, secretRef: {name: keys}}
    - configMapRef: {name: absent, optional: true}
    - secretRef: {name: absent, optional: true}
    env:
    - {name: LITERAL, value: plain}
    - {name: EXPANDED, value: "$(LITERAL) and $(NO_SUCH) and $$(LITERAL) $$$(LITERAL) $( $ $(S_password)"}
    - {name: size, value: overridden}
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    - {name: MAYBE, valueFrom: {secretKeyRef: {name: keys, key: absent, optional: true}}}
    - {name: MAYBEMAP, valueFrom: {configMapKeyRef: {name: absent, key: absent, optional: true}}}
    - {name: DATA_BASE_SERVICE_HOST, value: mine}
    - {name: SERVICE, value: "$(KUBERNETES_SERVICE_HOST):$(DATA_BASE_SERVICE_PORT)"}` + allFields + allResources, settled: kit.Ready, look: "hostname -f"},
	{name: "envplain", spec: "  enableServiceLinks: false\n" + oneApp + "    env:" + allResources, settled: kit.Ready},
	{
		name: "envargs",
		spec: `  containers: [{name: app, image: "busybox:1.36", env: [{name: A, value: a b}], command: [sh, -c, 'trap "exit 0" TERM; echo "$0" "$1"; while :; do sleep 1000 & wait; done'], args: ["$(A) $$(A) $(B)", "$(KUBERNETES_SERVICE_PORT)"]}]` + "\n", settled: kit.Ready,
	},
	{name: "envfile", spec: `
  initContainers: [{name: one, image: "busybox:1.36", command: [sh, -c, 'printf "# note\nA=\047one\047\nB=\047two words\047\n" > /d/env'], volumeMounts: [{name: d, mountPath: /d}]}]
` + oneApp + `    env: [{name: A, valueFrom: {fileKeyRef: {volumeName: d, path: env, key: A}}}, {name: C, valueFrom: {fileKeyRef: {volumeName: d, path: env, key: C, optional: true}}}]
  volumes: [{name: d, emptyDir: {}}]
`, settled: func(p *corev1.Pod) bool { return kit.Ready(p) || waiting("CreateContainerConfigError")(p) }},
	{name: "envfilebad", spec: `
  initContainers: [{name: one, image: "busybox:1.36", command: [sh, -c, 'printf "# note\nA=one\nB=\"two words\"\n" > /d/env'], volumeMounts: [{name: d, mountPath: /d}]}]
` + oneApp + `    env: [{name: A, valueFrom: {fileKeyRef: {volumeName: d, path: env, key: A}}}, {name: C, valueFrom: {fileKeyRef: {volumeName: d, path: env, key: C, optional: true}}}]
  volumes: [{name: d, emptyDir: {}}]
`, settled: func(p *corev1.Pod) bool { return kit.Ready(p) || waiting("CreateContainerConfigError")(p) }},
	{
		name: "fqdn", spec: "  hostname: given\n  subdomain: sub\n  setHostnameAsFQDN: true\n" + app(forever),
		settled: kit.Ready, look: "hostname; hostname -f",
	},
	{
		name: "longfqdn",
		spec: "  subdomain: a-very-long-name-that-does-not-fit-into-a-hosts-name\n  setHostnameAsFQDN: true\n" +
			app(forever),
		settled: waiting("ContainerCreating"), event: "FailedCreatePodSandBox",
	},
	{name: "override", spec: "  hostnameOverride: other.example.com\n" + app(forever), settled: kit.Ready},
	{name: "a-name-that-is-longer-than-the-sixty-three-characters-of-a-host-name", spec: app(forever), settled: kit.Ready},
	{name: "aliases", spec: "  hostAliases: [{ip: 192.0.2.9, hostnames: [foo.local, bar.local]}, {ip: 192.0.2.8, " +
		"hostnames: [baz]}]\n" + app(forever), settled: kit.Ready},
	{name: "hostaliases", spec: "  hostNetwork: true\n  hostAliases: [{ip: 192.0.2.9, hostnames: [foo.local]}]\n" +
		app(forever), settled: kit.Ready},
	{name: "ownhosts", spec: app(forever+", volumeMounts: [{name: h, mountPath: /etc/hosts}]") +
		"  volumes: [{name: h, hostPath: {path: /etc/hosts, type: File}}]\n", settled: kit.Ready},
	{name: "dnsdefault", spec: "  dnsPolicy: Default\n" + app(forever), settled: kit.Ready},
	{
		name: "dnshost", spec: "  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n" + app(forever),
		settled: kit.Ready,
	},
	{
		name: "dnsmore", spec: "  dnsConfig: {nameservers: [192.0.2.1, 192.0.2.2, 192.0.2.3], searches: [a.example, " +
			"cluster.local], options: [{name: ndots, value: \"2\"}, {name: edns0}, {name: timeout}]}\n" + app(forever),
		settled: kit.Ready, event: "DNSConfigForming",
	},
	{
		name: "dnssearch", spec: "  dnsConfig: {searches: [$SEARCHES]}\n" + app(forever), settled: kit.Ready,
		event: "DNSConfigForming",
	},
	{name: "hostpid", spec: "  hostPID: true\n  hostIPC: true\n" + app(forever), settled: kit.Ready},
	{name: "sharedpid", spec: "  shareProcessNamespace: true\n" + app(forever), settled: kit.Ready},

	{name: "secure", spec: secured("runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [3000], seccompProfile: "+
		"{type: RuntimeDefault}, sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"80\"}, {name: "+
		"kernel.shm_rmid_forced, value: \"1\"}]",
		"allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: "+
			"[NET_BIND_SERVICE]}"), settled: kit.Ready, look: process},
	{name: "added", spec: secured("runAsUser: 1000", "runAsUser: 0, runAsGroup: 7, capabilities: {add: [NET_ADMIN, "+
		"SYS_TIME], drop: [CHOWN]}, seccompProfile: {type: Unconfined}"), settled: kit.Ready, look: process},
	{
		name: "privileged", spec: secured("seccompProfile: {type: RuntimeDefault}", "privileged: true"),
		settled: kit.Ready, look: process,
	},
	{name: "strict", spec: secured("runAsUser: 1000, supplementalGroups: [3000], supplementalGroupsPolicy: Strict",
		"readOnlyRootFilesystem: false"), settled: kit.Ready, look: process},
	{name: "localhost", spec: secured("seccompProfile: {type: Localhost, localhostProfile: profile.json}",
		"seLinuxOptions: {level: \"s0:c1,c2\"}"), settled: kit.Ready, look: process},
	{
		name: "nolocalhost", spec: secured("seccompProfile: {type: Localhost, localhostProfile: none.json}", ""),
		settled: waiting("CreateContainerError"), event: "Failed",
	},
	{
		name: "unmasked", spec: "  hostUsers: false\n" + app(forever+", securityContext: {procMount: Unmasked}"),
		settled: kit.Ready, look: "grep -c /proc/ /proc/self/mountinfo; true",
	},
	{
		name: "nonrootuser", spec: secured("runAsNonRoot: true, runAsUser: 0", ""),
		settled: waiting("CreateContainerConfigError"), event: "Failed",
	},
	{name: "fsgroup", spec: secured("runAsUser: 1000, fsGroup: 4000", ""), settled: kit.Ready, look: process},
	{name: "devices", spec: app(forever + ", stdin: true, tty: true, workingDir: /made/up"), settled: kit.Ready},

	{name: "burstable", spec: sized("requests: {cpu: 30m, memory: 64Mi}", ""), settled: kit.Ready},
	{name: "memoryonly", spec: sized("limits: {memory: 64Mi}", ""), settled: kit.Ready},
	{name: "cpuonly", spec: sized("limits: {cpu: 150m}", ""), settled: kit.Ready},
	{
		name: "tiny", spec: sized("requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 2m, memory: 16Mi}", ""),
		settled: kit.Ready,
	},
	{name: "mixed", spec: `
  initContainers:
  - {name: one, image: "busybox:1.36", command: ["true"], resources: {requests: {cpu: 120m}, limits: {cpu: 300m, memory: 128Mi}}}
  - {name: side, image: "busybox:1.36", restartPolicy: Always, ` + forever + `, resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {cpu: 20m, memory: 32Mi}}}
  containers:
  - {name: app, image: "busybox:1.36", ` + forever + `, resources: {requests: {cpu: 20m, memory: 16Mi}, limits: {cpu: 50m, memory: 32Mi}}}
  - {name: other, image: "busybox:1.36", ` + forever + `, resources: {requests: {memory: 16Mi}, limits: {memory: 16Mi, cpu: 100m}}}
`, settled: kit.Ready},
	{name: "podlevel", spec: "  resources: {requests: {cpu: 30m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}\n" +
		app(forever+", resources: {requests: {cpu: 10m}}"), settled: kit.Ready},
	{name: "podlevelonly", spec: "  resources: {limits: {cpu: 100m, memory: 64Mi}}\n" + app(forever), settled: kit.Ready},
	{name: "overhead", spec: sized("limits: {cpu: 50m, memory: 32Mi}", "  runtimeClassName: heavy\n"), settled: kit.Ready},
	{
		name: "nohandler", spec: "  runtimeClassName: handless\n" + app(forever), settled: waiting("ContainerCreating"),
		event: "FailedCreatePodSandBox",
	},
}

var admissionStories = []story{
	{
		name: "outofmemory", spec: sized("requests: {memory: 100Ti}", "  nodeName: testbed\n"),
		settled: phase(corev1.PodFailed),
	},
	{
		name: "outofdisk", spec: sized("requests: {ephemeral-storage: 900Ti}", "  nodeName: testbed\n"),
		settled: phase(corev1.PodFailed),
	},
	{name: "outofhuge", spec: sized("requests: {cpu: 1m, hugepages-2Mi: 90Ti}, limits: {hugepages-2Mi: 90Ti}",
		"  nodeName: testbed\n"), settled: phase(corev1.PodFailed)},
	{
		name: "outofmany", spec: sized("requests: {cpu: 1000, memory: 100Ti}", "  nodeName: testbed\n"),
		settled: phase(corev1.PodFailed),
	},
	{
		name: "extended", spec: sized("limits: {example.com/thing: 1}", "  nodeName: testbed\n"),
		settled: func(p *corev1.Pod) bool { return kit.Ready(p) || phase(corev1.PodFailed)(p) },
	},
	{name: "affinity", spec: "  nodeName: testbed\n  affinity: {nodeAffinity: " +
		"{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, " +
		"operator: NotIn, values: [linux]}]}]}}}\n" + app(forever), settled: phase(corev1.PodFailed)},
	{
		name: "otheros", spec: "  nodeName: testbed\n  os: {name: windows}\n" + app(forever),
		settled: phase(corev1.PodFailed),
	},
	{name: "apparmor", spec: "  nodeName: testbed\n  securityContext: {appArmorProfile: {type: RuntimeDefault}}\n" +
		app(forever), settled: phase(corev1.PodFailed)},
	{name: "unsafe", spec: "  nodeName: testbed\n  securityContext: {sysctls: [{name: net.core.somaxconn, value: " +
		"\"4096\"}]}\n" + app(forever), settled: phase(corev1.PodFailed)},
	{name: "initrefused", spec: "  nodeName: testbed\n  nodeSelector: {no: where}\n  initContainers: [{name: one, " +
		"image: \"busybox:1.36\"}]\n" + app(forever), settled: phase(corev1.PodFailed)},
	{name: "ports", spec: "  nodeName: testbed\n" + app(forever+", ports: [{containerPort: 80, hostPort: 39481}, "+
		"{containerPort: 53, protocol: UDP, name: dns}]"), settled: kit.Ready},
}
