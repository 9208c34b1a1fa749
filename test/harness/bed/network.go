package bed

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
)

// subnetBits leaves a thousand pod addresses to a bed.
const subnetBits = 22

// chooseSubnet takes a /22 of 10.128.0.0/9 by the bed's ID and moves on while
// the host has an address in it.
func (b *Bed) chooseSubnet() error {
	taken, err := hostPrefixes()
	if err != nil {
		return err
	}
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
		if !overlapsAny(prefix, taken) {
			b.Subnet, b.Gateway = prefix, prefix.Addr().Next()
			return nil
		}
	}
	return errors.New("no /22 of 10.128.0.0/9 is free on this host; remove test beds that are no longer used")
}

func hostPrefixes() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list host addresses: %w", err)
	}
	var all []netip.Prefix
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all, nil
}

func overlapsAny(prefix netip.Prefix, others []netip.Prefix) bool {
	for _, other := range others {
		if prefix.Overlaps(other) {
			return true
		}
	}
	return false
}

// createBridge makes the bridge before the first pod does: its address is the
// node's address and what the API server is reached by.
func (b *Bed) createBridge() error {
	if b.hasBridge() {
		return nil
	}
	gateway := netip.PrefixFrom(b.Gateway, b.Subnet.Bits()).String()
	for _, args := range [][]string{
		{"link", "add", b.Bridge, "type", "bridge"},
		{"addr", "add", gateway, "dev", b.Bridge},
		{"link", "set", b.Bridge, "up"},
	} {
		if err := run("ip", args...); err != nil {
			return fmt.Errorf("create bridge %s: %w", b.Bridge, err)
		}
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
	saved, _ := command("iptables-save", "-t", "nat").Output()
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

// command has no deadline: cleaning must also work when all contexts are done.
func command(name string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), name, args...)
}

func run(name string, args ...string) error {
	out, err := command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
