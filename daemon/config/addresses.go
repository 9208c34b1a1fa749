package config

import (
	"fmt"
	"net/netip"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// parseAddr reads an address as the kubelet does: a number of an IPv4 address may begin with zeros, and there is no
// zone.
func parseAddr(text string) (netip.Addr, bool) {
	numbers := strings.Split(text, ".")
	for i, number := range numbers {
		if trimmed := strings.TrimLeft(number, "0"); trimmed != number && len(numbers) == 4 {
			numbers[i] = "0"[min(len(trimmed), 1):] + trimmed
		}
	}
	addr, err := netip.ParseAddr(strings.Join(numbers, "."))
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// noAddress is the warning of an item that is no address. The kubelet goes on without it.
func noAddress(where, item string) string {
	return fmt.Sprintf("%s: %q is no IP address: it is ignored", where, item)
}

// parseNodeIPs reads --node-ip: one address, or two of different families. What is no address is left out with a
// warning.
func parseNodeIPs(text string) (addrs []netip.Addr, warnings []string, err error) {
	if text == "" {
		return nil, nil, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		if addr, ok := parseAddr(strings.TrimSpace(item)); ok {
			addrs = append(addrs, addr)
		} else {
			warnings = append(warnings, noAddress("--node-ip", item))
		}
	}
	if len(addrs) > 2 || len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4() {
		return nil, nil, fmt.Errorf("--node-ip %q: want one address, or one IPv4 and one IPv6 address", text)
	}
	if len(addrs) == 2 && (addrs[0].IsUnspecified() || addrs[1].IsUnspecified()) {
		return nil, nil, fmt.Errorf("--node-ip %q: the unspecified address can't be one of two", text)
	}
	return addrs, warnings, nil
}

// resolveClusterDNS leaves what is no address out of clusterDNS, with a warning.
func resolveClusterDNS(k *kubeletv1beta1.KubeletConfiguration, where func(string) string) (warnings []string) {
	var servers []string
	for _, item := range k.ClusterDNS {
		if addr, ok := parseAddr(item); ok {
			servers = append(servers, addr.String())
		} else {
			warnings = append(warnings, noAddress("clusterDNS"+where("clusterDNS"), item))
		}
	}
	k.ClusterDNS = servers
	return warnings
}
