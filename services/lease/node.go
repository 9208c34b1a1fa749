package lease

import (
	"maps"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
)

const (
	// The labels of the operating system and the architecture had these names before Kubernetes 1.14.
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"

	annotationAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// annotationProvidedIP gives --node-ip to an external cloud provider.
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
	taintUninitialized   = "node.cloudprovider.kubernetes.io/uninitialized"

	// imageNamesMax bounds the names that a Node lists for one image.
	imageNamesMax = 5
)

// Facts are what the node's object follows from.
type Facts struct {
	Machine  *topic.Machine  // nil while unknown
	Runtime  *topic.Runtime  // nil while unknown
	Pressure *topic.Pressure // nil while unknown
	Shutdown *topic.Shutdown // nil means none
	CSI      CSI
	// Devices are those of device plugins; nil while unknown.
	Devices *topic.NodeResources
	// Plugins are the device plugins and DRA drivers that have registered in plugins_registry, by their keys on the bus.
	Plugins map[string]bool
	// Exclusive is true where each pod waits for the resource daemon (config.Exclusive).
	Exclusive bool
	// Health is the last word of each daemon.
	Health map[string]topic.DaemonHealth
	// RuntimeDown is since when the runtime hasn't answered; zero while it does.
	RuntimeDown time.Time
	// Listening is since when this daemon hears what the others say: since its start, or since the bus came back.
	Listening time.Time
	// Addresses are the machine's, primary first.
	Addresses []corev1.NodeAddress
	Now       time.Time
}

// build makes the Node as the node agent wants it, starting from the one that the API server has (nil where it has
// none): what others own in it stays. It doesn't change its arguments.
func build(c *config.Config, f Facts, current *corev1.Node) *corev1.Node {
	var node *corev1.Node
	if current == nil {
		node = initial(c)
	} else {
		node = current.DeepCopy()
		reconcile(node, c)
	}
	setAddresses(node, c, f)
	setInfo(&node.Status.NodeInfo, f)
	if f.Machine != nil {
		setResources(&node.Status, c, *f.Machine)
	}
	if f.Devices != nil {
		setDevices(&node.Status, *f.Devices)
	}
	if f.Runtime != nil {
		setRuntime(&node.Status, *f.Runtime)
	}
	setCSI(node, f)
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = c.Kubelet.Port
	node.Status.DeclaredFeatures = kube.DeclaredFeatures()
	node.Status.Conditions = Conditions(f, node.Status)
	return node
}

// initial is a Node to be registered, without its status.
func initial(c *config.Config) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.NodeName, Labels: defaultLabels(c), Annotations: map[string]string{}},
		Spec:       corev1.NodeSpec{ProviderID: c.ProviderID},
	}
	maps.Copy(node.Labels, c.NodeLabels)
	if c.Standalone() && c.Kubelet.PodCIDR != "" {
		// Nobody else gives the node addresses for its pods.
		node.Spec.PodCIDRs = strings.Split(c.Kubelet.PodCIDR, ",")
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	node.Spec.Taints = append(node.Spec.Taints, c.RegisterTaints...)
	if external(c) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: taintUninitialized, Value: "true",
			Effect: corev1.TaintEffectNoSchedule,
		})
	}
	setAttachDetach(node, c)
	return node
}

func external(c *config.Config) bool { return c.CloudProvider == "external" }

func defaultLabels(c *config.Config) map[string]string {
	return map[string]string{
		corev1.LabelHostname:   c.NodeName,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
		labelOSBeta:            runtime.GOOS,
		labelArchBeta:          runtime.GOARCH,
	}
}

// reconcile brings what the node agent owns of a registered Node's metadata up to date. Labels and taints that were
// given for registration and changed since stay as they are, as with the kubelet; labels that every node has are set
// again.
func reconcile(node *corev1.Node, c *config.Config) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	labels := defaultLabels(c)
	for name, value := range c.NodeLabels {
		if reassertedLabels[name] && value != "" {
			labels[name] = value
		}
	}
	maps.Copy(node.Labels, labels)
	setAttachDetach(node, c)
}

func setAttachDetach(node *corev1.Node, c *config.Config) {
	if on := c.Kubelet.EnableControllerAttachDetach; on != nil && !*on {
		delete(node.Annotations, annotationAttachDetach)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[annotationAttachDetach] = "true"
}

func setInfo(info *corev1.NodeSystemInfo, f Facts) {
	info.OperatingSystem, info.Architecture = runtime.GOOS, runtime.GOARCH
	info.KubeletVersion = kube.KubernetesVersion
	info.KubeProxyVersion = "" //nolint:staticcheck // an older kubelet may have set it; the control plane wants it empty
	if m := f.Machine; m != nil {
		info.MachineID, info.SystemUUID, info.BootID = m.MachineID, m.SystemUUID, m.BootID
		info.KernelVersion, info.OSImage = m.KernelVersion, m.OSImage
		info.Swap = nil
		if m.SwapBytes > 0 {
			capacity := int64(m.SwapBytes)
			info.Swap = &corev1.NodeSwapStatus{Capacity: &capacity}
		}
	}
	if r := f.Runtime; r != nil && r.Name != "" {
		info.ContainerRuntimeVersion = r.Name + "://" + r.Version
	} else if info.ContainerRuntimeVersion == "" {
		info.ContainerRuntimeVersion = "remote://Unknown"
	}
}

func setRuntime(s *corev1.NodeStatus, r topic.Runtime) {
	if !r.Reachable {
		return
	}
	s.RuntimeHandlers = r.Handlers
	features := r.Features
	s.Features = &features
	s.Images = nil
	for _, image := range r.Images {
		image.Names = image.Names[:min(len(image.Names), imageNamesMax)]
		s.Images = append(s.Images, image)
	}
}
