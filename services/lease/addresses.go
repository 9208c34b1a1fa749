package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"kubelot.dev/daemon/config"
)

// lookupTimeout bounds a DNS lookup of the node's own name.
const lookupTimeout = 5 * time.Second

// host is what the addresses are found by; tests have their own.
type host struct {
	local  func() ([]netip.Addr, error)                                 // of the machine's interfaces
	lookup func(ctx context.Context, name string) ([]netip.Addr, error) // by DNS
	route  func(want netip.Addr) (netip.Addr, error)                    // of the default route's interface
	uptime time.Duration                                                // of the machine; 0 where it isn't known
}

func realHost() host {
	return host{local: interfaceAddresses, lookup: remembering(lookup), route: routeAddress, uptime: uptime()}
}

// remembering gives the last answer again while no name server answers: the node's address must not change for that.
// It belongs to one goroutine.
func remembering(lookup func(context.Context, string) ([]netip.Addr, error),
) func(context.Context, string) ([]netip.Addr, error) {
	var last []netip.Addr
	return func(ctx context.Context, name string) ([]netip.Addr, error) {
		found, err := lookup(ctx, name)
		var dns *net.DNSError
		if err != nil && len(last) > 0 && (!errors.As(err, &dns) || !dns.IsNotFound) {
			return last, nil
		}
		last = found
		return found, err
	}
}

// findAddresses are the node's addresses: InternalIPs, primary first, then the host name. An address that
// is given must be one of the machine's; without one it is that of the node's name, or of the default route.
func findAddresses(ctx context.Context, c *config.Config, h host) ([]corev1.NodeAddress, error) {
	var given []netip.Addr
	for _, ip := range c.NodeIPs {
		if !ip.IsUnspecified() {
			given = append(given, ip)
		}
	}
	var ips []netip.Addr
	switch {
	case len(given) > 0:
		for _, ip := range given {
			if err := usable(ip, h); err != nil {
				return nil, fmt.Errorf("--node-ip %s: %w", ip, err)
			}
		}
		ips = given
	case external(c) && len(c.NodeIPs) == 0:
		// The cloud provider sets the addresses.
	default:
		ip, err := findAddress(ctx, c, h)
		if err != nil {
			return nil, err
		}
		ips = []netip.Addr{ip}
	}
	addresses := make([]corev1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: c.NodeName}), nil
}

// findAddress tries the node's name as an address, then by DNS, then the default route. IPv4 is preferred
// unless --node-ip is "::".
func findAddress(ctx context.Context, c *config.Config, h host) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(c.NodeName); err == nil {
		return ip, nil
	}
	want := netip.IPv4Unspecified()
	if len(c.NodeIPs) > 0 {
		want = c.NodeIPs[0]
	}
	var second netip.Addr
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, lookupErr := h.lookup(ctx, c.NodeName)
	for _, ip := range found {
		if usable(ip, h) != nil {
			continue
		}
		if ip.Is4() == want.Is4() {
			return ip, nil
		}
		if !second.IsValid() {
			second = ip
		}
	}
	if second.IsValid() {
		return second, nil
	}
	ip, err := h.route(want)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an address of node %s (give one with --node-ip): %w", c.NodeName,
			errors.Join(err, lookupErr))
	}
	return ip, nil
}

// usable returns an error that says why an address can't be the node's; nil for one that can.
func usable(ip netip.Addr, h host) error {
	switch {
	case ip.IsLoopback(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip.IsUnspecified():
		return errors.New("a loopback, multicast, link-local or unspecified address can't be the node's")
	}
	local, err := h.local()
	if err != nil {
		return fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, own := range local {
		if own == ip {
			return nil
		}
	}
	return errors.New("no network interface of this machine has it")
}

// setAddresses sets the node's addresses and the annotation that names them to a cloud provider. What a
// cloud provider has set stays.
func setAddresses(node *corev1.Node, c *config.Config, f Facts) {
	var given []string
	for _, ip := range c.NodeIPs {
		if !ip.IsUnspecified() {
			given = append(given, ip.String())
		}
	}
	if external(c) && len(given) > 0 {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[annotationProvidedIP] = strings.Join(given, ",")
	} else {
		delete(node.Annotations, annotationProvidedIP)
	}
	if external(c) && len(node.Status.Addresses) > 0 || len(f.Addresses) == 0 {
		return
	}
	node.Status.Addresses = f.Addresses
}

func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, prefix.Addr().Unmap())
		}
	}
	return ips, nil
}

func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err
}

func routeAddress(want netip.Addr) (netip.Addr, error) {
	ip, err := utilnet.ResolveBindAddress(net.IP(want.AsSlice()))
	if err != nil {
		return netip.Addr{}, err
	}
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the default route's address %s is not an IP address", ip)
	}
	return addr.Unmap(), nil
}
