package bed

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"kubelot.dev/test/testbed/proc"
)

// subnetBits leaves a thousand pod addresses to a bed.
const subnetBits = 22

// chooseSubnet takes a /22 of 10.128.0.0/9 for the bed alone: the first free one, beginning with one that follows from
// the bed's ID.
func (b *Bed) chooseSubnet() error {
	raw, err := hex.DecodeString(b.ID)
	if err != nil {
		return fmt.Errorf("bed ID %q: %w", b.ID, err)
	}
	const subnets = 1 << (subnetBits - 9)
	start := binary.BigEndian.Uint32(raw) % subnets
	for i := range uint32(subnets) {
		number := (start + i) % subnets
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], 10<<24|1<<23|number<<(32-subnetBits))
		prefix := netip.PrefixFrom(netip.AddrFrom4(addr), subnetBits)
		if err = b.hold("subnet-"+prefix.Addr().String(), func() error { return b.subnetFree(prefix) }); err == nil {
			b.Subnet, b.Gateway = prefix, prefix.Addr().Next()
			return nil
		}
	}
	return fmt.Errorf("no /22 of 10.128.0.0/9 is free on this host; remove test beds that are no longer used: %w", err)
}

// subnetFree is an error if the host has an address in the subnet other than that of the bed's own bridge, which a
// killed run leaves.
func (b *Bed) subnetFree(subnet netip.Prefix) error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil || link.Name == b.Bridge {
			continue // one that goes away meanwhile has none
		}
		for _, addr := range addrs {
			if taken, err := netip.ParsePrefix(addr.String()); err == nil && subnet.Overlaps(taken.Masked()) {
				return fmt.Errorf("%s has the address %s", link.Name, taken)
			}
		}
	}
	return nil
}

// createBridge makes the bridge before the first pod does: its address is the
// node's address and what the API server is reached by.
func (b *Bed) createBridge() error {
	if b.hasBridge() {
		return nil
	}
	gateway := netip.PrefixFrom(b.Gateway, b.Subnet.Bits()).String()
	// Without an address of its own a bridge has that of one of its ports, and the plugin's CHECK, which CRI-O asks for,
	// fails when the port goes. The plugin gives it one where it makes the bridge.
	hardware := "02:" + b.ID[:2] + ":" + b.ID[2:4] + ":" + b.ID[4:6] + ":" + b.ID[6:8] + ":01"
	for _, args := range [][]string{
		{"link", "add", b.Bridge, "address", hardware, "type", "bridge"},
		{"addr", "add", gateway, "dev", b.Bridge},
		{"link", "set", b.Bridge, "up"},
	} {
		if err := run("ip", args...); err != nil {
			return fmt.Errorf("create bridge %s: %w", b.Bridge, err)
		}
	}
	return nil
}

// AddAddress makes one more address of the subnet this host's, until the bridge goes. Who connects to it comes from the
// gateway's address, and not from the same one as would be usual: behind it may be a machine that has the address too.
func (b *Bed) AddAddress(addr netip.Addr) error {
	if err := run("ip", "route", "add", "local", addr.String(), "dev", b.Bridge, "src", b.Gateway.String(), "table",
		"local"); err != nil {
		return fmt.Errorf("give this host the address %s: %w", addr, err)
	}
	return nil
}

func (b *Bed) hasBridge() bool {
	_, err := net.InterfaceByName(b.Bridge)
	return err == nil
}

func (b *Bed) removeBridge() error {
	if !b.hasBridge() {
		return nil
	}
	if err := run("ip", "link", "del", b.Bridge); err != nil {
		return fmt.Errorf("remove bridge %s: %w", b.Bridge, err)
	}
	return nil
}

// removeHostPorts deletes the iptables rules that the portmap plugin made for
// pods of this bed whose CNI DEL never ran. Its rules name the network in a
// comment, and each pod has a chain of its own.
func (b *Bed) removeHostPorts() error {
	// It fails without iptables: then there are no rules.
	saved, _ := proc.Command("iptables-save", "-t", "nat").Output()
	var errs []error
	for line := range strings.Lines(string(saved)) {
		rule := splitRule(strings.TrimSpace(line))
		if len(rule) < 2 || rule[0] != "-A" || !strings.Contains(line, `\"`+b.Network()+`\"`) {
			continue
		}
		rule[0] = "-D"
		errs = append(errs, run("iptables", append([]string{"-w", "-t", "nat"}, rule...)...))
		if chain := rule[len(rule)-1]; strings.HasPrefix(chain, "CNI-DN-") {
			errs = append(errs,
				run("iptables", "-w", "-t", "nat", "-F", chain),
				run("iptables", "-w", "-t", "nat", "-X", chain))
		}
	}
	return errors.Join(errs...)
}

// splitRule splits a line of iptables-save into arguments; comments are in
// double quotes with backslash escapes.
func splitRule(line string) []string {
	var args []string
	var arg strings.Builder
	quoted, started := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			i++
			arg.WriteByte(line[i])
		case c == '"':
			quoted, started = !quoted, true
		case c == ' ' && !quoted:
			if started {
				args = append(args, arg.String())
			}
			arg.Reset()
			started = false
		default:
			arg.WriteByte(c)
			started = true
		}
	}
	if started {
		args = append(args, arg.String())
	}
	return args
}

func run(name string, args ...string) error {
	out, err := proc.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
