package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of Kubernetes' API validation (KEP-2595), which resolvers cope with.
const (
	maxServers        = 3
	maxSearches       = 32
	maxSearchListText = 2048
)

// Reasons of Warnings.
const (
	reasonForming    = "DNSConfigForming"
	reasonMissingDNS = "MissingClusterDNS"
)

// Node is what the node contributes to the DNS settings of its pods.
type Node struct {
	// ClusterDNS are the cluster's name servers (KubeletConfiguration.clusterDNS).
	ClusterDNS []string
	// ClusterDomain is the cluster's domain (KubeletConfiguration.clusterDomain).
	ClusterDomain string
	// Resolv is the node's own resolver configuration (the file that KubeletConfiguration.resolvConf names);
	// nil when that setting is empty, which switches look-ups off.
	Resolv *Resolv
	// IPs are the node's addresses; with Resolv nil their families choose the loopback name servers.
	IPs []netip.Addr
}

// Warning is something the user must know about the settings; the worker records it as an Event on the pod.
type Warning struct {
	// Reason is DNSConfigForming or MissingClusterDNS.
	Reason  string
	Message string
}

// ForPod computes the DNS settings that the sandbox gets, and what was left out.
func ForPod(node Node, pod *corev1.Pod) (*runtimeapi.DNSConfig, []Warning) {
	config, warnings := base(node, pod)
	if extra := pod.Spec.DNSConfig; extra != nil {
		config.Servers = unique(config.Servers, extra.Nameservers)
		config.Searches = unique(config.Searches, extra.Searches)
		for _, o := range extra.Options {
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			config.Options = setOption(config.Options, option)
		}
	}
	return config, append(warnings, limit(config)...)
}

// base gives the settings that follow from the pod's DNS policy alone.
func base(node Node, pod *corev1.Pod) (*runtimeapi.DNSConfig, []Warning) {
	switch pod.Spec.DNSPolicy {
	case corev1.DNSNone:
		return &runtimeapi.DNSConfig{}, nil
	case corev1.DNSDefault:
		return fromNode(node), nil
	case corev1.DNSClusterFirstWithHostNet:
	default:
		// ClusterFirst is the default; the node's network can't be expected to reach the cluster's name server.
		if pod.Spec.HostNetwork {
			return fromNode(node), nil
		}
	}
	if len(node.ClusterDNS) > 0 {
		return fromCluster(node, pod.Namespace), nil
	}
	return fromNode(node), []Warning{{reasonMissingDNS, fmt.Sprintf(
		"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
			"Falling back to %q policy.",
		fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), corev1.DNSClusterFirst, corev1.DNSDefault)}}
}

func fromCluster(node Node, namespace string) *runtimeapi.DNSConfig {
	var searches []string
	if node.Resolv != nil {
		searches = slices.Clone(node.Resolv.Searches)
	}
	if d := node.ClusterDomain; d != "" {
		searches = unique([]string{namespace + ".svc." + d, "svc." + d, d}, searches)
	}
	return &runtimeapi.DNSConfig{
		Servers:  slices.Clone(node.ClusterDNS),
		Searches: searches,
		// Names with fewer dots than this are tried with the search list first: service.namespace.svc needs it.
		Options: []string{"ndots:5"},
	}
}

// fromNode gives the node's settings. Without any, a name server that isn't there keeps the runtime from putting
// in its own default.
func fromNode(node Node) *runtimeapi.DNSConfig {
	if r := node.Resolv; r != nil {
		return &runtimeapi.DNSConfig{
			Servers: slices.Clone(r.Servers), Searches: slices.Clone(r.Searches),
			Options: slices.Clone(r.Options),
		}
	}
	config := &runtimeapi.DNSConfig{Searches: []string{"."}}
	for _, ip := range node.IPs {
		if ip.Unmap().Is6() {
			config.Servers = append(config.Servers, "::1")
		} else {
			config.Servers = append(config.Servers, "127.0.0.1")
		}
	}
	if len(config.Servers) == 0 {
		config.Servers = []string{"127.0.0.1"}
	}
	return config
}

// limit cuts the settings to what resolvers accept.
func limit(config *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(config.Servers) > maxServers {
		config.Servers = config.Servers[:maxServers]
		warnings = append(warnings, Warning{
			reasonForming,
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
				strings.Join(config.Servers, " "),
		})
	}
	before := len(config.Searches)
	config.Searches = limitSearches(config.Searches)
	if len(config.Searches) < before {
		warnings = append(warnings, Warning{
			reasonForming,
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
				strings.Join(config.Searches, " "),
		})
	}
	return warnings
}

func limitSearches(searches []string) []string {
	searches = searches[:min(len(searches), maxSearches)]
	// glibc aborts on a search path that is longer than a name may be.
	searches = slices.DeleteFunc(searches, func(s string) bool { return len(s) > validation.DNS1123SubdomainMaxLength })
	length := -1
	for i, s := range searches {
		if length += 1 + len(s); length > maxSearchListText {
			return searches[:i]
		}
	}
	return searches
}

// unique joins lists and leaves out what occurred before.
func unique(lists ...[]string) []string {
	var out []string
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// setOption adds a resolver option in the place of one of the same name.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, o := range options {
		if other, _, _ := strings.Cut(o, ":"); other == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}
