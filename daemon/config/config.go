// Package config is the node's configuration as every daemon sees it: the kubelet's own
// KubeletConfiguration file and drop-ins, decoded strictly, with defaults filled in and
// validated, and the kubelet's flags that are no fields of it.
package config

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// containerLogsDir is where log collectors find the logs of all containers. Kubernetes has no setting for it.
const containerLogsDir = "/var/log/containers"

// RootDir and RunDir are the defaults of --root-dir, the kubelet's, and of --run-dir.
const (
	RootDir = "/var/lib/kubelet"
	RunDir  = "/run/kubelot"
)

// certDir is the kubelet's default of --cert-dir. It is there whatever --root-dir is.
const certDir = "/var/lib/kubelet/pki"

// Config is the resolved configuration. A value of it never changes; a daemon that takes other settings while it runs
// gets another value (daemon.Reloads).
type Config struct {
	// Kubelet is the KubeletConfiguration with every default filled in.
	Kubelet kubeletv1beta1.KubeletConfiguration

	// NodeName is the Node object's name: --hostname-override or the lower-case host name.
	NodeName string
	// NodeIPs are the addresses given by --node-ip, primary first; empty means: find out.
	NodeIPs []netip.Addr
	// ProviderID is --provider-id or the configuration's providerID.
	ProviderID string
	// CloudProvider is "" or "external" (--cloud-provider).
	CloudProvider string
	// RuntimeCgroups is the container runtime's cgroup (--runtime-cgroups); empty for that of its unit.
	RuntimeCgroups string
	// RegisterNode reports whether the node registers itself (default true).
	RegisterNode bool
	// NodeLabels (--node-labels) and RegisterTaints (--register-with-taints or the configuration) are set at registration.
	NodeLabels     map[string]string
	RegisterTaints []corev1.Taint

	// RootDir holds pods, plugins, pki and checkpoints (default /var/lib/kubelet).
	RootDir string
	// PodLogsDir is where container logs are (default /var/log/pods).
	PodLogsDir string
	// ContainerLogsDir holds the links into PodLogsDir that log collectors read: always the constant of this name,
	// wherever the logs are; only tests have their own.
	ContainerLogsDir string
	// RunDir holds the bus socket, keys and metrics sockets (default /run/kubelot).
	RunDir string
	// BusSocket is the bus's unix socket (default <RunDir>/bus.sock).
	BusSocket string

	// Kubeconfig is the path of the credentials for the API server; empty means standalone mode:
	// static pods only, no API server.
	Kubeconfig string
	// BootstrapKubeconfig is used to get a client certificate where Kubeconfig doesn't exist yet.
	BootstrapKubeconfig string
	// ClientCertificate is the file with the rotated client certificate and its key; empty where the kubeconfig's user is
	// used as it is (rotateCertificates is false, or there is no API server).
	ClientCertificate string
	// CertDir is where rotated certificates are kept (default /var/lib/kubelet/pki, whatever the root directory is).
	CertDir string

	// RuntimeEndpoint and ImageEndpoint are the CRI sockets, such as unix:///run/containerd/containerd.sock.
	RuntimeEndpoint string
	ImageEndpoint   string

	// DeadContainers are the flags --maximum-dead-containers-per-container, --maximum-dead-containers and
	// --minimum-container-ttl-duration, which have no fields.
	DeadContainers DeadContainers

	// CredentialProviders are the flags --image-credential-provider-config and --image-credential-provider-bin-dir, which
	// have no fields.
	CredentialProviders CredentialProviders

	// Warnings name the configured fields that kubelot doesn't support yet, a sentence each.
	Warnings []string
}

// DeadContainers is how many dead containers are kept; negative numbers mean any.
type DeadContainers struct {
	PerContainer, Total int
	MinAge              time.Duration
}

// CredentialProviders are the programs that are asked for registry credentials: their configuration, a file or a
// directory, and the directory that they are in. Both are empty if there are none.
type CredentialProviders struct{ Config, BinDir string }

// Tracing returns where spans are sent, by OTLP over gRPC without TLS, and how many pods of a million are traced. Zero
// means that nothing is traced.
func Tracing(c *Config) (endpoint string, perMillion int32) {
	endpoint = "localhost:4317"
	t := c.Kubelet.Tracing
	if t == nil {
		return endpoint, 0
	}
	if t.SamplingRatePerMillion != nil {
		perMillion = *t.SamplingRatePerMillion
	}
	if t.Endpoint != nil && *t.Endpoint != "" {
		endpoint = *t.Endpoint
	}
	return endpoint, perMillion
}

// Standalone reports whether there is no API server.
func (c *Config) Standalone() bool { return c.Kubeconfig == "" && c.BootstrapKubeconfig == "" }
