package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// Pods that the node refuses because it hasn't what they ask for, or isn't what they ask for. The scheduler isn't
// asked, which would leave them.
func TestWhyRefusals(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	asks := func(resource, quantity string) string {
		return onThisNode + container(fmt.Sprintf("resources: {limits: {cpu: 1m, %s: %s}}", resource, quantity), "")
	}
	port := func(name string) string {
		return pod(name, onThisNode+container(`ports: [{containerPort: 80, hostPort: 28451}]`, ""))
	}
	ns.Apply(port("haver"))
	ns.Running("haver")
	ns.Apply(port("port"))
	explained(t, ns, []stuck{
		{"memory", asks("memory", "1000Ti"), []string{
			"this node has refused it: this node hasn't enough memory: it requests 1099511627776000, and ",
			"-> a refusal is final: delete the pod",
		}},
		{"disk", asks("ephemeral-storage", "1000Ti"), []string{
			"this node has refused it: this node hasn't enough ephemeral-storage: it requests 1099511627776000",
		}},
		{"hugepages", asks("hugepages-2Mi", "1000Gi"), []string{"this node hasn't enough hugepages-2Mi: it requests "}},
		{"os", onThisNode + container("", "  os: {name: windows}\n"), []string{
			"this node has refused it: it asks for another operating system than this node's",
		}},
		{"oslabel", onThisNode + container("", "  nodeSelector: {kubernetes.io/os: windows}\n"), []string{
			"this node has refused it: its nodeSelector or node affinity doesn't match this node's labels",
		}},
		{"affinity", onThisNode + container("", "  affinity: {nodeAffinity: "+
			"{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "+
			"[{matchExpressions: [{key: gpu, operator: Exists}]}]}}}\n"), []string{
			"its nodeSelector or node affinity doesn't match this node's labels",
		}},
	})
	says(t, ns, "port", "this node has refused it: another pod of this node has its host port")
}

// Pods that write more than they may are evicted.
func TestWhyEvictions(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const limit = "resources: {limits: {ephemeral-storage: 1Mi}}"
	writes := func(path, more string) string {
		return `command: [sh, -c, "dd if=/dev/zero of=` + path + ` bs=1M count=4; sleep 3600"]` + more
	}
	const mount = ", volumeMounts: [{name: scratch, mountPath: /v}]"
	explained(t, ns, []stuck{
		{"volume", container(writes("/v/much", mount),
			"  volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}]\n"), []string{
			`this node has ended it: it wrote more into its emptyDir "scratch" than the limit of 1Mi`,
			"-> raise sizeLimit of the volume scratch, or write less",
		}},
		// What its other container may write besides leaves room for the pod as a whole.
		{"container", strings.Replace(container(writes("/much", ", "+limit), ""), "}]\n", "}, {name: other, image: "+
			`"busybox:1.36", command: $FOREVER, resources: {limits: {ephemeral-storage: 1Gi}}}]`+"\n", 1), []string{
			"this node has ended it: its container app wrote more to the node's disk than its limit of 1Mi",
		}},
		{"pod", container(writes("/v/much", mount+", "+limit), "  volumes: [{name: scratch, emptyDir: {}}]\n"), []string{
			"this node has ended it: it wrote more to the node's disk than the limits of its containers, 1Mi",
		}},
	})
}

// Claims of devices that the node can't follow.
func TestWhyClaims(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	if _, err := bed.Client.ResourceV1().ResourceClaims(ns.Name).Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "free"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "absent.example.com"}},
		}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of := func(source string) string {
		return onThisNode + container("resources: {claims: [{name: gpu}]}", "  resourceClaims: [{name: gpu, "+source+"}]\n")
	}
	explained(t, ns, []stuck{
		{"missing", of("resourceClaimName: absent"), []string{
			`the pod can't start yet: the ResourceClaim "absent" doesn't exist in the namespace $NS`,
		}},
		{"template", of("resourceClaimTemplateName: absent"), []string{
			"the pod can't start yet: the ResourceClaim of its template doesn't exist yet",
		}},
		{"unreserved", of("resourceClaimName: free"), []string{
			"the pod can't start yet: its ResourceClaim free isn't reserved for it",
		}},
	})
}

// Pods that aren't on the node, or were.
func TestWhyElsewhere(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("gated", "  schedulingGates: [{name: example.com/wait}]\n"+container("", "")))
	if _, stderr, code := kubelot(t, "", "why", ns.Name+"/gated"); code != 1 ||
		!strings.Contains(stderr, "this node knows no pod "+ns.Name+"/gated: is it scheduled to this node?") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	ns.Apply(pod("brief", onThisNode+container(`resources: {requests: {cpu: "1000"}}`, "")))
	p := ns.Phase("brief", corev1.PodFailed)
	ns.Delete("brief", 0)
	ns.Gone(p)
	says(t, ns, "brief", "this node has refused it: this node hasn't enough cpu",
		"is gone: it isn't on this node any more")
}

// The node's answer while no pods come to it. It isn't parallel: other tests' pods must come.
func TestWhyCordoned(t *testing.T) {
	bed.Kubectl(t, "cordon", kit.NodeName)
	defer bed.Kubectl(t, "uncordon", kit.NodeName)
	bed.NodeSays(t, "the node is cordoned, so no new pods come", "-> kubectl uncordon "+kit.NodeName)
}
