package parity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// TestResourcesTakenOver has kubelot take over pods of which the kubelet tells what it has read back from their cgroups
// (KEP-5419). Where that is all there is to tell nothing is written; the rest is put right once.
func TestResourcesTakenOver(t *testing.T) {
	if unified() {
		t.Skip("the amounts below are those of cgroup v1")
	}
	bed := kit.StartWithoutNode(t)
	bed.Config = config + "syncFrequency: 2s\n" // the kubelet reads a cgroup when it looks again at a pod that runs
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	pods := []struct {
		name, spec, want string
		same             bool // as the kubelet says
	}{
		{
			"guaranteed", sized("limits: {cpu: 100m, memory: 32Mi}", ""),
			"{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 100m, memory: 32Mi}}", true,
		},
		{
			"podlevel", "  resources: {requests: {cpu: 30m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}\n" + app(forever),
			"{requests: {cpu: 30m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}", true,
		},
		{"besteffort", app(forever), "{}", false},
		{
			"tiny", sized("requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 2m, memory: 16Mi}", ""),
			"{requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 2m, memory: 16Mi}}", false,
		},
		{
			"disk", sized("requests: {cpu: 30m, ephemeral-storage: 1Mi}", ""), "{requests: {cpu: 30m, ephemeral-storage: 1Mi}}",
			false,
		},
	}
	for _, p := range pods {
		ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + p.name + "}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
			p.spec)
	}
	readBack := func(p *corev1.Pod) bool {
		if !kit.Ready(p) || kit.Status(p, "app").User == nil || kit.Status(p, "app").User.Linux == nil {
			return false
		}
		_, cpu := p.Status.Resources.Requests[corev1.ResourceCPU]
		_, disk := p.Status.Resources.Requests[corev1.ResourceEphemeralStorage]
		return (p.Name != "tiny" || !cpu) && (p.Name != "disk" || !disk)
	}
	for _, p := range pods {
		ns.Wait(p.name, "read back by the kubelet", readBack)
	}
	bed.Node.Stop() // from here on nobody writes
	before := map[string]*corev1.Pod{}
	for _, p := range pods {
		before[p.name] = ns.Running(p.name)
	}

	if err := bed.StartNode(t.Context(), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	after := map[string]*corev1.Pod{}
	for _, p := range pods {
		var want corev1.ResourceRequirements
		if err := yaml.UnmarshalStrict([]byte(p.want), &want); err != nil {
			t.Fatal(err)
		}
		after[p.name] = ns.Wait(p.name, "told of as "+p.want, func(p *corev1.Pod) bool {
			return p.Status.Resources != nil && equality.Semantic.DeepEqual(*p.Status.Resources, want)
		})
	}
	ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: later}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
		app(forever))
	ns.Running("later")
	for _, p := range pods {
		now := ns.Running(p.name)
		if now.ResourceVersion != after[p.name].ResourceVersion || p.same &&
			now.ResourceVersion != before[p.name].ResourceVersion {
			t.Errorf("%s was written at %s by the kubelet, at %s after the take over and at %s later",
				p.name, before[p.name].ResourceVersion, after[p.name].ResourceVersion, now.ResourceVersion)
		}
		if was, is := kit.Status(before[p.name], "app").ContainerID, kit.Status(now, "app").ContainerID; was != is {
			t.Errorf("%s: the container was %s and is %s", p.name, was, is)
		}
	}
}
