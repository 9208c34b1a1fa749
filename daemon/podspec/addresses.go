package podspec

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HostIPs are the node's addresses as pods have them, primary first: one of each family, an internal one if there is.
func HostIPs(node *corev1.Node) []string {
	var ips []string
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				ips = append(ips, a.Address)
			}
		}
	}
	return OrderIPs(ips, ips)
}

// OrderIPs puts a pod's addresses in the order that its status reports: the first of the family of the node's
// primary address, then the first of the other family. Without node addresses IPv4 comes first.
func OrderIPs(podIPs, hostIPs []string) []string {
	v6First := len(hostIPs) > 0 && isIPv6(hostIPs[0])
	var ips []string
	for _, v6 := range []bool{v6First, !v6First} {
		i := slices.IndexFunc(podIPs, func(ip string) bool {
			_, err := netip.ParseAddr(ip)
			return err == nil && isIPv6(ip) == v6
		})
		if i >= 0 {
			ips = append(ips, podIPs[i])
		}
	}
	return ips
}

func isIPv6(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	return err == nil && addr.Is6() && !addr.Is4In6()
}
