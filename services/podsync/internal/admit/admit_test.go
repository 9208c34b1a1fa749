package admit

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// list reads pairs of resource and quantity.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

var serial int

// pod is one of a container with these requests, changed by each of the edits.
func pod(requests corev1.ResourceList, edits ...func(*corev1.Pod)) *corev1.Pod {
	serial++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", serial), UID: types.UID(fmt.Sprint(serial)), Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
	}
	p.Spec.Containers[0].Resources.Requests = requests
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func static(p *corev1.Pod) { p.Annotations[annotationSource] = "file" }

func priority(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func port(n int32, ip string, protocol corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: n, HostIP: ip, Protocol: protocol})
	}
}

func sysctlOf(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name}}}
	}
}

func selector(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func node(edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Allocatable: list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", "example.com/gpu", "1"),
	}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: effect}} }
}

var machine = Facts{OS: "linux", Arch: "amd64", AllowedUnsafeSysctls: []string{"kernel.msg*", "net/core/somaxconn"}}

func under(memory, disk, pid bool) Facts {
	f := machine
	f.Pressure = topic.Pressure{Memory: memory, Disk: disk, PID: pid}
	return f
}

// question is a call of Admit with the beginning of its answer.
type question struct {
	what   string
	pod    *corev1.Pod
	node   *corev1.Node
	active []*corev1.Pod
	facts  Facts
	want   string
}

func ask(t *testing.T, questions []question) {
	t.Helper()
	for _, q := range questions {
		got := ""
		if r := Admit(q.pod, q.node, q.active, q.facts); r != nil {
			got = r.Error()
		}
		if (got == "") != (q.want == "") || !strings.HasPrefix(got, q.want) {
			t.Errorf("%s: got %q, want %q", q.what, got, q.want)
		}
	}
}

func TestResources(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	cpu := func(s string) corev1.ResourceList { return list("cpu", s) }
	sidecar := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: cpu("500m")}},
			{Name: "i", Resources: corev1.ResourceRequirements{Requests: cpu("1700m")}},
		}
	}
	three := []*corev1.Pod{pod(nil), pod(nil), pod(nil)}
	ask(t, []question{
		{"plain", pod(cpu("2")), node(), nil, machine, ""},
		{"no node", pod(nil), nil, nil, machine, "InvalidNodeInfo: Kubelet cannot get node info."},
		{
			"cpu", pod(cpu("1500m")), node(),
			[]*corev1.Pod{pod(cpu("600m"))},
			machine,
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 600, capacity: 2000",
		},
		{
			"memory", pod(list("memory", "2Gi")), node(), nil, machine,
			"OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
		},
		{"ephemeral storage", pod(list("ephemeral-storage", "11Gi")), node(), nil, machine, "OutOfephemeral-storage: "},
		{
			"pods", pod(nil), node(), three, machine,
			"OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
		},
		{"itself among the active", three[0], node(), three, machine, ""},
		{"extended", pod(list("example.com/gpu", "2")), node(), nil, machine, "OutOfexample.com/gpu: "},
		{"extended that the node doesn't know", pod(list("example.com/other", "2")), node(), nil, machine, ""},
		{"huge pages that the node lacks", pod(list("hugepages-2Mi", "2Mi")), node(), nil, machine, "OutOfhugepages-2Mi: "},
		{"node without status", pod(cpu("9")), node(func(n *corev1.Node) { n.Status.Allocatable = nil }), three, machine, ""},
		{"cpu is named before memory", pod(list("memory", "2Gi", "cpu", "9")), node(), nil, machine, "OutOfcpu: "},
		{
			"sidecar and init container run together", pod(cpu("100m"), sidecar), node(), nil, machine,
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 2200, used: 0, capacity: 2000",
		},
		{"overhead", pod(cpu("2"), func(p *corev1.Pod) { p.Spec.Overhead = cpu("1m") }), node(), nil, machine, "OutOfcpu: "},
		{"pod level", pod(cpu("1"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("3")}
		}), node(), nil, machine, "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000"},
		{"resources before affinity", pod(cpu("9"), selector("a", "b")), node(), nil, machine, "OutOfcpu: "},
		{"affinity before resources, critical", pod(cpu("9"), selector("a", "b"), static), node(), nil, machine, "NodeAffinity: "},
	})
}

func TestPlace(t *testing.T) {
	ask(t, []question{
		{
			"node selector", pod(nil, selector("disk", "ssd")), node(), nil, machine,
			"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{"node selector met", pod(nil, selector("disk", "ssd")), node(func(n *corev1.Node) { n.Labels = map[string]string{"disk": "ssd"} }), nil, machine, ""},
		{"labels a new node lacks", pod(nil, selector("kubernetes.io/arch", "amd64")), node(), nil, machine, ""},
		{"another architecture", pod(nil, selector("kubernetes.io/arch", "arm64")), node(), nil, machine, "NodeAffinity: "},
		{
			"node name", pod(nil, func(p *corev1.Pod) { p.Spec.NodeName = "other" }), node(), nil, machine,
			"NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{
			"host port", pod(nil, port(80, "", "TCP")), node(),
			[]*corev1.Pod{pod(nil, port(80, "10.0.0.1", ""))},
			machine,
			"NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{"host port, other protocol", pod(nil, port(80, "", "TCP")), node(), []*corev1.Pod{pod(nil, port(80, "", "UDP"))}, machine, ""},
		{"host port, other address", pod(nil, port(80, "10.0.0.2", "TCP")), node(), []*corev1.Pod{pod(nil, port(80, "10.0.0.1", "TCP"))}, machine, ""},
		{
			"taint NoExecute", pod(nil), node(tainted("NoExecute")), nil, machine,
			"TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{"taint NoExecute, static", pod(nil, static), node(tainted("NoExecute")), nil, machine, ""},
		{"taint NoSchedule", pod(nil), node(tainted("NoSchedule")), nil, machine, ""},
	})
}

func TestSecurity(t *testing.T) {
	strict := corev1.SupplementalGroupsPolicyStrict
	armored := func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "RuntimeDefault"}}
	}
	ask(t, []question{
		{
			"os field", pod(nil, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: "windows"} }), node(), nil, machine,
			"PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
		},
		{
			"os label", pod(nil, func(p *corev1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }), node(), nil, machine,
			"PodOSSelectorNodeLabelDoesNotMatch: ",
		},
		{"strict groups", pod(nil, func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		}), node(), nil, machine, "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node"},
		{"safe sysctl", pod(nil, sysctlOf("net.ipv4.tcp_syncookies")), node(), nil, machine, ""},
		{"unsafe sysctl", pod(nil, sysctlOf("kernel.sem")), node(), nil, machine, `SysctlForbidden: forbidden sysctl: "kernel.sem" not allowlisted`},
		{"allowed sysctl prefix", pod(nil, sysctlOf("kernel.msgmax")), node(), nil, machine, ""},
		{"allowed sysctl with slashes", pod(nil, sysctlOf("net.core.somaxconn")), node(), nil, machine, ""},
		{
			"sysctl on the host network", pod(nil, sysctlOf("net.ipv4.tcp_syncookies"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }), node(), nil, machine,
			`SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`,
		},
		{"AppArmor", pod(nil, armored), node(), nil, machine, "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{"AppArmor there", pod(nil, armored), node(), nil, Facts{OS: "linux", AppArmor: true}, ""},
		{"AppArmor annotation", pod(nil, func(p *corev1.Pod) {
			p.Annotations["container.apparmor.security.beta.kubernetes.io/c"] = "runtime/default"
		}), node(), nil, machine, "AppArmor: "},
	})
}

func TestPressure(t *testing.T) {
	tolerate := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/memory-pressure", Operator: "Exists"}}
	}
	cpu := func(s string) corev1.ResourceList { return list("cpu", s) }
	ask(t, []question{
		{"memory pressure", pod(nil), node(), nil, under(true, false, false), "Evicted: The node had condition: [MemoryPressure]. "},
		{"memory pressure, burstable", pod(cpu("1m")), node(), nil, under(true, false, false), ""},
		{"memory pressure, tolerated", pod(nil, tolerate), node(), nil, under(true, false, false), ""},
		{"memory and disk pressure, tolerated", pod(nil, tolerate), node(), nil, under(true, true, false), "Evicted: The node had condition: [MemoryPressure DiskPressure]. "},
		{"PID pressure", pod(cpu("1m")), node(), nil, under(false, false, true), "Evicted: The node had condition: [PIDPressure]. "},
		{"disk pressure, static", pod(nil, static), node(), nil, under(false, true, false), ""},
		{"disk pressure, critical", pod(nil, priority(2000000000)), node(), nil, under(false, true, false), ""},
		{"disk pressure, important", pod(nil, priority(1999999999)), node(), nil, under(false, true, false), "Evicted: "},
	})
}

func TestVictims(t *testing.T) {
	full := list("cpu", "1", "memory", "1Mi")
	guaranteed := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	}
	roomy := node(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "4", "memory", "1Gi", "pods", "100") })
	tight := node(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "4", "memory", "1Gi", "pods", "2") })
	small, big := pod(list("cpu", "1")), pod(list("cpu", "2"))
	dear, idle := pod(full, guaranteed), pod(nil)
	critical := pod(list("cpu", "1"), priority(2000000000))
	for _, c := range []struct {
		what   string
		pod    *corev1.Pod
		node   *corev1.Node
		active []*corev1.Pod
		want   []*corev1.Pod
	}{
		{"the smallest that suffices", pod(list("cpu", "1"), static), roomy, []*corev1.Pod{big, small, dear}, []*corev1.Pod{small}},
		{"burstable before guaranteed", pod(list("cpu", "2"), static), roomy, []*corev1.Pod{dear, big, small}, []*corev1.Pod{big}},
		{"more than one", pod(list("cpu", "3"), static), roomy, []*corev1.Pod{dear, big, small}, []*corev1.Pod{big, small}},
		{"a slot", pod(nil, static), tight, []*corev1.Pod{dear, idle}, []*corev1.Pod{idle}},
		{"not enough", pod(list("cpu", "5"), static), roomy, []*corev1.Pod{dear, big, small}, nil},
		{"critical ones stay", pod(list("cpu", "4"), static), roomy, []*corev1.Pod{critical}, nil},
		{"unless of less priority", pod(list("cpu", "4"), static, priority(2000001000)), roomy, []*corev1.Pod{critical}, []*corev1.Pod{critical}},
		{"only for critical pods", pod(list("cpu", "4")), roomy, []*corev1.Pod{small}, nil},
		{"not for other reasons", pod(list("cpu", "4"), static, selector("a", "b")), roomy, []*corev1.Pod{small}, nil},
	} {
		r := Admit(c.pod, c.node, c.active, machine)
		if r == nil {
			t.Fatalf("%s: admitted", c.what)
		}
		got := Victims(c.pod, r, c.active)
		if names(got) != names(c.want) {
			t.Errorf("%s: victims %s, want %s", c.what, names(got), names(c.want))
		}
	}
}

func names(pods []*corev1.Pod) string {
	var n []string
	for _, p := range pods {
		n = append(n, p.Name)
	}
	return strings.Join(n, " ")
}
