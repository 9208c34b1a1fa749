package e2e

import (
	"strings"
	"testing"
)

// Environment variables in all their forms.
func TestEnv(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, size: "3"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Service
metadata: {name: data-base}
spec: {clusterIP: 10.96.77.7, selector: {app: none}, ports: [{name: sql, port: 5432}]}
---
` + strings.Replace(pod("env", `
  hostname: given
  subdomain: sub
  # The node learns of the Service in its own time, and a container gets what is known when it is created.
  initContainers: [{name: known, image: "busybox:1.36", command: [sh, -c, 'test -n "$DATA_BASE_SERVICE_HOST"']}]
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 32Mi}}
    envFrom:
    - configMapRef: {name: settings}
    - {prefix: S_, secretRef: {name: keys}}
    - configMapRef: {name: absent, optional: true}
    env:
    - {name: LITERAL, value: plain}
    - {name: EXPANDED, value: "$(LITERAL) and $(NO_SUCH) and $$(LITERAL)"}
    - {name: size, value: overridden}
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    - {name: MAYBE, valueFrom: {secretKeyRef: {name: keys, key: absent, optional: true}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['team']"}}}
    - {name: ANNOTATION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {containerName: app, resource: limits.memory, divisor: 1Mi}}}
`), "  name: env\n", "  name: env\n  labels: {team: blue}\n  annotations: {note: hello}\n", 1))
	p := ns.Running("env")
	for name, want := range map[string]string{
		"colour": "blue", "size": "overridden", "S_password": "s3cret",
		"LITERAL": "plain", "EXPANDED": "plain and $(NO_SUCH) and $(LITERAL)", "COLOUR": "blue", "PASSWORD": "s3cret",
		"NAME": "env", "NAMESPACE": ns.Name, "POD_UID": string(p.UID), "LABEL": "blue", "ANNOTATION": "hello",
		"NODE": "testbed", "ACCOUNT": "default", "HOST_IP": p.Status.HostIP, "POD_IP": p.Status.PodIP,
		"CPU": "250", "CPUS": "1", "MEMORY": "32", "HOSTNAME": "given",
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "DATA_BASE_SERVICE_HOST": "10.96.77.7", "DATA_BASE_SERVICE_PORT_SQL": "5432",
		"DATA_BASE_PORT_5432_TCP": "tcp://10.96.77.7:5432",
	} {
		ns.Equal(p, "app", `echo "$`+name+`"`, want)
	}
	ns.Equal(p, "app", `echo "${MAYBE-unset}"`, "unset")
	ns.Equal(p, "app", "hostname -f 2>/dev/null || hostname", "given.sub."+ns.Name+".svc.cluster.local")
}

// A reference to what doesn't exist holds the container up with a clear reason, and creating it helps.
func TestEnvMissing(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("env", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    env: [{name: A, valueFrom: {configMapKeyRef: {name: later, key: a}}}]
`))
	waiting := ns.Waiting("env", "app", "CreateContainerConfigError")
	if want := `configmap "later" not found`; waiting.Message != want {
		t.Errorf("message %q; want %q", waiting.Message, want)
	}
	ns.Event("env", "Failed", `Error: configmap "later" not found`)
	ns.Apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {a: there}}")
	ns.Equal(ns.Running("env"), "app", `echo "$A"`, "there")
}

// Name resolution: policies, dnsConfig, and the hosts file.
func TestDNS(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const containers = "\n  containers:\n  - {name: app, image: \"busybox:1.36\", command: $FOREVER}\n"
	ns.Apply(strings.Join([]string{
		pod("first", containers), pod("node", containers+"  dnsPolicy: Default\n"), pod("none", containers+`
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.1], searches: [example.com], options: [{name: ndots, value: "2"}, {name: edns0}]}
  hostAliases: [{ip: 192.0.2.9, hostnames: [foo.local, bar.local]}]
`), pod("hostnet", containers+"  hostNetwork: true\n"),
	}, "\n---\n"))
	p := ns.Running("first")
	ns.Equal(p, "app", "cat /etc/resolv.conf", "search "+ns.Name+".svc.cluster.local svc.cluster.local "+
		"cluster.local\nnameserver 10.96.0.10\noptions ndots:5")
	hosts := ns.Exec(p, "app", "cat /etc/hosts")
	for _, want := range []string{"# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", p.Status.PodIP + "\tfirst"} {
		if !strings.Contains(hosts, want) {
			t.Errorf("/etc/hosts lacks %q:\n%s", want, hosts)
		}
	}
	ns.Equal(ns.Running("node"), "app", "grep -c "+bed.Bed.Gateway.String()+" /etc/resolv.conf", "1")
	p = ns.Running("none")
	ns.Equal(p, "app", "cat /etc/resolv.conf", "search example.com\nnameserver 192.0.2.1\noptions ndots:2 edns0")
	ns.Equal(p, "app", "grep foo.local /etc/hosts", "192.0.2.9\tfoo.local\tbar.local")
	p = ns.Running("hostnet")
	if p.Status.PodIP != p.Status.HostIP {
		t.Errorf("pod IP %s on the host network; want the host's %s", p.Status.PodIP, p.Status.HostIP)
	}
	if got := ns.Exec(p, "app", "cat /etc/hosts"); !strings.HasPrefix(got,
		"# Kubernetes-managed hosts file (host network).") {
		t.Errorf("/etc/hosts on the host network:\n%s", got)
	}
	ns.Equal(p, "app", "readlink /proc/self/ns/net", hostLink(t, "net"))
}
