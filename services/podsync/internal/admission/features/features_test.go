package features

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"kubelot.dev/kube"
)

const (
	restartAll = "RestartAllContainersOnContainerExits"
	podLevel   = "InPlacePodLevelResourcesVerticalScaling"
	initResize = "InPlacePodVerticalScalingInitContainers"
	hostUsers  = "UserNamespacesHostNetworkSupport"
)

// lacking is what is said of these features; the kubelet's sentence.
func lacking(names string) string {
	return "Pod requires node features that are not available: " + names
}

// podWith is a pod with an init container, a sidecar and a container, changed.
func podWith(changes ...func(*corev1.PodSpec)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "app"}},
	}}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

func rule(action corev1.ContainerRestartRuleAction) []corev1.ContainerRestartRule {
	return []corev1.ContainerRestartRule{{
		Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
		},
	}}
}

func restartsAll(s *corev1.PodSpec) {
	s.Containers[0].RestartPolicyRules = rule(corev1.ContainerRestartRuleActionRestartAllContainers)
}

func initRestartsAll(s *corev1.PodSpec) {
	s.InitContainers[0].RestartPolicyRules = rule(corev1.ContainerRestartRuleActionRestartAllContainers)
}

func restartsItself(s *corev1.PodSpec) {
	s.Containers[0].RestartPolicyRules = rule(corev1.ContainerRestartRuleActionRestart)
}

func hostNetwork(s *corev1.PodSpec) { s.HostNetwork = true }

func users(host bool) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.HostUsers = &host }
}

func cpu(text string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
}

func wholePod(text string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { r := cpu(text); s.Resources = &r }
}

func initContainer(i int, text string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.InitContainers[i].Resources = cpu(text) }
}

func app(text string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu(text) }
}

func TestMissing(t *testing.T) {
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		declared []string
		want     string
	}{
		"a plain pod":                           {pod: podWith()},
		"all containers begin anew":             {pod: podWith(restartsAll), want: lacking(restartAll)},
		"an init container has them begin anew": {pod: podWith(initRestartsAll), want: lacking(restartAll)},
		"a container begins anew":               {pod: podWith(restartsItself)},
		"the node has the feature":              {pod: podWith(restartsAll), declared: []string{restartAll}},
		"the node has another one": {
			pod: podWith(restartsAll), declared: []string{podLevel}, want: lacking(restartAll),
		},
		"the host's network without its users": {pod: podWith(hostNetwork, users(false)), want: lacking(hostUsers)},
		"the host's network and users":         {pod: podWith(hostNetwork, users(true))},
		"the host's network":                   {pod: podWith(hostNetwork)},
		"users of its own":                     {pod: podWith(users(false))},
		"resources of the pod as a whole":      {pod: podWith(wholePod("1"))},
		"two features, in the order of their names": {
			pod: podWith(hostNetwork, users(false), restartsAll), want: lacking(restartAll + ", " + hostUsers),
		},
		"one of two": {
			pod: podWith(hostNetwork, users(false), restartsAll), declared: []string{restartAll}, want: lacking(hostUsers),
		},
	} {
		if got := missing(c.pod, c.declared); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestMissingForAChange(t *testing.T) {
	fewer := podWith()
	fewer.Spec.InitContainers = nil
	for name, c := range map[string]struct {
		before, now *corev1.Pod
		declared    []string
		want        string
	}{
		"nothing changes": {before: podWith(wholePod("1"), restartsAll), now: podWith(wholePod("1"), restartsAll)},
		"a container":     {before: podWith(app("1")), now: podWith(app("2"))},
		"a sidecar":       {before: podWith(initContainer(1, "1")), now: podWith(initContainer(1, "2"))},
		"an init container": {
			before: podWith(initContainer(0, "1")), now: podWith(initContainer(0, "2")), want: lacking(initResize),
		},
		"the pod as a whole": {before: podWith(wholePod("1")), now: podWith(wholePod("2")), want: lacking(podLevel)},
		"the pod as a whole, in other words": {
			before: podWith(wholePod("1")), now: podWith(wholePod("1000m")),
		},
		"the pod as a whole, from nothing": {before: podWith(), now: podWith(wholePod("2")), want: lacking(podLevel)},
		"the node has the feature": {
			before: podWith(wholePod("1")), now: podWith(wholePod("2")), declared: []string{podLevel},
		},
		"both": {
			before: podWith(wholePod("1"), initContainer(0, "1")), now: podWith(wholePod("2"), initContainer(0, "2")),
			want: lacking(podLevel + ", " + initResize),
		},
		"fewer init containers, as a static pod may have": {before: podWith(), now: fewer},
		"more of them": {before: fewer, now: podWith(initContainer(0, "1"))},
	} {
		if got := missingFor(c.before, c.now, c.declared); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What the node declares are features of Kubernetes, in order: a name that isn't one would be a promise of nothing.
func TestDeclaredFeatures(t *testing.T) {
	declared := kube.DeclaredFeatures()
	if !slices.IsSorted(declared) {
		t.Errorf("%v isn't sorted", declared)
	}
	for _, name := range declared {
		if !slices.ContainsFunc(features.AllFeatures, func(f types.Feature) bool { return f.Name() == name }) {
			t.Errorf("Kubernetes has no feature %s", name)
		}
	}
	if got := Missing(podWith(restartsAll)); got != lacking(restartAll) {
		t.Errorf("of the node's own features: %q", got)
	}
	if got := MissingFor(podWith(wholePod("1")), podWith(wholePod("2"))); got != lacking(podLevel) {
		t.Errorf("of the node's own features: %q", got)
	}
}
