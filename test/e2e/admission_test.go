package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// restartsAll is the spec of a pod that needs a feature which kubelot doesn't declare, featureMissing what is said of
// it.
const (
	restartsAll = `  containers:
  - name: app
    image: "busybox:1.36"
    command: $FOREVER
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
`
	featureMissing = "Pod requires node features that are not available: RestartAllContainersOnContainerExits"
)

// Pods that the node refuses, with the reasons and sentences that tools know.
func TestAdmission(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("holder", `
  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER, ports: [{containerPort: 80, hostPort: 9480}]}]
`))
	ns.Running("holder")
	const container = `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]` + "\n"
	for _, c := range []struct{ name, spec, reason, message string }{
		{
			"port", "  containers: [{name: app, image: \"busybox:1.36\", ports: [{containerPort: 80, hostPort: 9480}]}]\n",
			"NodePorts",
			"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{
			"selector", container + "  nodeSelector: {no: where}\n", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"init", "  initContainers: [{name: one, image: \"busybox:1.36\"}]\n  nodeSelector: {no: where}\n" +
				container, "NodeAffinity",
			"Predicate NodeAffinity failed",
		},
		{
			"cpu", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {cpu: 1000}}}]\n", "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 1000000, used: ",
		},
		{
			"memory", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {memory: 100Ti}}}]\n",
			"OutOfmemory",
			"Node didn't have enough resource: memory, requested: ",
		},
		{
			"sysctl", container + "  securityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}\n", "SysctlForbidden",
			`forbidden sysctl: "kernel.msgmax" not allowlisted`,
		},
		{
			"affinity",
			container +
				`  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]}]}}}` + "\n",
			"NodeAffinity", "Predicate NodeAffinity failed",
		},
		{
			"storage", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {ephemeral-storage: " +
				"900Ti}}}]\n", "OutOfephemeral-storage",
			"Node didn't have enough resource: ephemeral-storage, requested: ",
		},
		{
			"huge", "  containers: [{name: app, image: \"busybox:1.36\", resources: {requests: {cpu: 1m, hugepages-2Mi: " +
				"90Ti}, limits: {hugepages-2Mi: 90Ti}}}]\n",
			"OutOfhugepages-2Mi",
			"Node didn't have enough resource: hugepages-2Mi, requested: 98956046499840, used: 0, capacity: ",
		},
		{
			"unsafe", container + "  securityContext: {sysctls: [{name: net.core.somaxconn, value: \"4096\"}]}\n",
			"SysctlForbidden",
			`forbidden sysctl: "net.core.somaxconn" not allowlisted`,
		},
		{
			"apparmor", container + "  securityContext: {appArmorProfile: {type: RuntimeDefault}}\n", "AppArmor",
			"Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		{
			"os", container + "  os: {name: windows}\n", "PodOSNotSupported",
			"Failed to admit pod as the OS field doesn't match node OS",
		},
		{"feature", restartsAll, "PodFeatureUnsupported", featureMissing},
		{
			"order", restartsAll + "  nodeSelector: {no: where}\n", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled"); c.reason == "AppArmor" &&
				strings.HasPrefix(string(enabled), "Y") {
				t.Skip("this kernel has AppArmor")
			}
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

// No scheduler keeps a static pod away from a node that hasn't what the pod needs.
func TestStaticPodThatNeedsAFeature(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	manifest(t, ns.Name+".yaml", inNamespace(ns, pod("static", restartsAll)))
	const mirror = "static-" + kit.NodeName
	p := ns.Phase(mirror, corev1.PodFailed)
	if p.Status.Reason != "PodFeatureUnsupported" || p.Status.Message != "Pod was rejected: "+featureMissing {
		t.Errorf("reason %s, message %q; want PodFeatureUnsupported, %q", p.Status.Reason, p.Status.Message, featureMissing)
	}
	if len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].ContainerID != "" {
		t.Errorf("it has the container %+v", p.Status.ContainerStatuses[0])
	}
	ns.Event(mirror, "PodFeatureUnsupported", featureMissing)
}

// A node with taints, few places and labels of its own refuses what doesn't fit it, and takes what does.
func TestTaintedNode(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	// It would delete the pod that the node is to refuse, perhaps before the node has seen it.
	if err := own.ControlPlane.RestartControllers(t.Context(), "--controllers=*,-taint-eviction-controller"); err != nil {
		t.Fatal(err)
	}
	if err := own.StartNode(t.Context(), node.Kubelot, "--max-pods=2", "--allowed-unsafe-sysctls=net.core.*",
		"--seccomp-default",
		"--register-with-taints=dedicated=gpu:NoExecute,quiet=:PreferNoSchedule,full=yes:NoSchedule",
		"--node-labels=topology.kubernetes.io/zone=z1,node.kubernetes.io/instance-type=m1,example.com/rack=7",
		"--kube-reserved=cpu=100m,memory=64Mi,ephemeral-storage=1Gi", "--system-reserved=cpu=50m,memory=32Mi"); err != nil {
		t.Fatal(err)
	}
	registered := own.KubeNode(t)
	want := []corev1.Taint{
		{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoExecute},
		{Key: "quiet", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "full", Value: "yes", Effect: corev1.TaintEffectNoSchedule},
	}
	for _, taint := range want {
		if !slices.ContainsFunc(registered.Spec.Taints, func(is corev1.Taint) bool {
			return is.MatchTaint(&taint) &&
				is.Value == taint.Value
		}) {
			t.Errorf("the node has the taints %v; want %v", registered.Spec.Taints, taint)
		}
	}
	for key, value := range map[string]string{
		corev1.LabelTopologyZone: "z1", corev1.LabelInstanceTypeStable: "m1", "example.com/rack": "7",
		corev1.LabelHostname: kit.NodeName,
	} {
		if registered.Labels[key] != value {
			t.Errorf("label %s is %q; want %q", key, registered.Labels[key], value)
		}
	}
	heldBack(t, registered, map[corev1.ResourceName]string{
		corev1.ResourceCPU: "150m", corev1.ResourceMemory: "196Mi",
		corev1.ResourcePods: "0",
	})
	if pods := registered.Status.Capacity.Pods().Value(); pods != 2 {
		t.Errorf("room for %d pods; want 2", pods)
	}

	ns := own.Namespace(t)
	const container = `  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`
	const tolerant = container + "  tolerations: [{key: dedicated, operator: Exists, effect: NoExecute}]\n"
	// Only NoExecute counts where the scheduler was left out.
	ns.Apply(pod("tolerant", tolerant+"  nodeSelector: {example.com/rack: \"7\"}\n  securityContext: {sysctls: [{name: "+
		"net.core.somaxconn, value: \"4096\"}]}\n"))
	p := ns.Running("tolerant")
	ns.Equal(p, "app", "cat /proc/sys/net/core/somaxconn", "4096")
	ns.Equal(p, "app", "grep Seccomp: /proc/1/status", "Seccomp:\t2")
	ns.Apply(pod("frail", container))
	ns.Event("frail", "TaintToleration",
		"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate")
	ns.Because("frail", "rejected-taint",
		"this node has refused it: this node has a NoExecute taint that it doesn't tolerate")
	ns.Apply(pod("second", tolerant))
	second := ns.Running("second")
	ns.Apply(pod("third", tolerant))
	third := ns.Phase("third", corev1.PodFailed)
	full := "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"
	if third.Status.Reason != "OutOfpods" || third.Status.Message != full {
		t.Errorf("reason %s, message %q; want OutOfpods, %q", third.Status.Reason, third.Status.Message, full)
	}
	ns.Because("third", "rejected-pods", "this node has refused it: this node has 2 of at most 2 pods already")
	preempts(t, ns, tolerant)
	for _, p := range []*corev1.Pod{p, second} {
		ns.Delete(p.Name, -1)
		ns.Gone(p)
	}
}

// preempts starts a critical pod on a node that is full: one of the others gives way.
func preempts(t *testing.T, ns *kit.Namespace, spec string) {
	t.Helper()
	ns.Apply(pod("critical", spec+"  priorityClassName: system-node-critical\n"))
	critical := ns.Running("critical")
	var victims []corev1.Pod
	kit.Eventually(t, "one pod to give way", func() error {
		list, err := ns.Bed().Client.CoreV1().Pods(ns.Name).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		victims = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Status.Reason != "Preempting" })
		if len(victims) != 1 || victims[0].Status.Phase != corev1.PodFailed {
			return fmt.Errorf("%d pods are preempted", len(victims))
		}
		return nil
	})
	v := victims[0]
	const message = "Preempted in order to admit critical pod"
	if v.Status.Message != message {
		t.Errorf("message %q; want %q", v.Status.Message, message)
	}
	i := slices.IndexFunc(v.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget
	})
	if i < 0 || v.Status.Conditions[i].Reason != "TerminationByKubelet" ||
		v.Status.Conditions[i].Message != "Pod was preempted by Kubelet to accommodate a critical pod." {
		t.Errorf("conditions %+v; want DisruptionTarget, TerminationByKubelet", v.Status.Conditions)
	}
	ns.Event(v.Name, "Preempting", message)
	ns.Because(v.Name, "preempted", "this node has ended it: it had to make room for a critical pod")
	ns.Delete("critical", -1)
	ns.Gone(critical)
}
