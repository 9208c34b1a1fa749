package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/cri/imagename"
	"kubelot.dev/daemon/podspec"
)

// setDefaults fills in what the API server would have (v1 defaulting of Pod, Kubernetes 1.36). The order matters:
// pod-level resources are derived from the containers' before quantities are rounded.
func setDefaults(pod *corev1.Pod) {
	spec := &pod.Spec
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			defaultRequests(&list[i].Resources)
			if spec.HostNetwork {
				defaultHostPorts(list[i].Ports)
			}
		}
	}
	defaultPodResources(pod)
	setNil(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	setEmpty(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setEmpty(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setNil(&spec.SecurityContext, corev1.PodSecurityContext{})
	setNil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setEmpty(&spec.SchedulerName, corev1.DefaultSchedulerName)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for c := range podspec.Containers(spec) {
		defaultContainer(c)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

func setEmpty[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func setNil[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// defaultRequests makes a limit the request where there is none.
func defaultRequests(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = q.DeepCopy()
		}
	}
}

// defaultHostPorts: on the host network a container's port is the host's.
func defaultHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		setEmpty(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

// defaultPodResources completes pod-level resources that are given in part (KEP-2837).
func defaultPodResources(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil {
		return
	}
	if len(r.Limits) > 0 || len(r.Requests) > 0 {
		for name, q := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
			if _, requested := r.Requests[name]; hugePage(name) && !requested {
				fill(&r.Limits, name, q)
			}
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, q := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if overcommit := !strings.Contains(string(name), "/") && !hugePage(name); overcommit {
			fill(&r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		fill(&r.Requests, name, q)
	}
}

// fill sets a pod-level resource that isn't set, if there may be one of that name.
func fill(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, set := (*list)[name]; set || !resourcehelper.IsSupportedPodLevelResource(name) {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

func hugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// roundUp: the API keeps no more than three decimals of a quantity.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// pullPolicy is Always for the tag latest, said or implied.
func pullPolicy(image string) corev1.PullPolicy {
	name, err := imagename.ParseQualified(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if name.Tag == "latest" || name.Tag == "" && name.Digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	setEmpty(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setEmpty(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setEmpty(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from != nil && from.FieldRef != nil {
			setEmpty(&from.FieldRef.APIVersion, "v1")
		}
		if from != nil && from.FileKeyRef != nil {
			setNil(&from.FileKeyRef.Optional, false)
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setEmpty(&p.TimeoutSeconds, 1)
	setEmpty(&p.PeriodSeconds, 10)
	setEmpty(&p.SuccessThreshold, 1)
	setEmpty(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setNil(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	setEmpty(&h.Path, "/")
	setEmpty(&h.Scheme, corev1.URISchemeHTTP)
}
