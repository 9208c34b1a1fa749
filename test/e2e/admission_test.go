package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// Pods that the node refuses, with the reasons and sentences that tools know.
func TestAdmission(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("holder", `
  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER, ports: [{containerPort: 80, hostPort: 39480}]}]
`))
	ns.Running("holder")
	const container = `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]` + "\n"
	for _, c := range []struct{ name, spec, reason, message string }{
		{
			"port", "  containers: [{name: app, image: \"busybox:1.36\", ports: [{containerPort: 80, hostPort: 39480}]}]\n", "NodePorts",
			"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{
			"selector", container + "  nodeSelector: {no: where}\n", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"init", "  initContainers: [{name: one, image: \"busybox:1.36\"}]\n  nodeSelector: {no: where}\n" + container, "NodeAffinity",
			"Predicate NodeAffinity failed",
		},
		{
			"cpu", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {cpu: 1000}}}]\n", "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 1000000, used: ",
		},
		{
			"memory", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {memory: 100Ti}}}]\n", "OutOfmemory",
			"Node didn't have enough resource: memory, requested: ",
		},
		{
			"sysctl", container + "  securityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}\n", "SysctlForbidden",
			`forbidden sysctl: "kernel.msgmax" not allowlisted`,
		},
		{
			"os", container + "  os: {name: windows}\n", "PodOSNotSupported",
			"Failed to admit pod as the OS field doesn't match node OS",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns.Apply(pod(c.name, "  nodeName: testbed\n"+c.spec))
			p := ns.Phase(c.name, corev1.PodFailed)
			if p.Status.Reason != c.reason || !strings.HasPrefix(p.Status.Message, "Pod was rejected: "+c.message) {
				t.Errorf("reason %s, message %q; want %s, %q", p.Status.Reason, p.Status.Message, c.reason, c.message)
			}
			ns.Event(c.name, c.reason, c.message)
		})
	}
	if p := ns.Running("holder"); kit.Status(p, "app").RestartCount != 0 {
		t.Errorf("the pod that was there first: %+v", p.Status)
	}
}
