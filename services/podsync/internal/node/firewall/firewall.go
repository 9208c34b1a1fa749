// Package firewall keeps the iptables chains that a kubelet leaves for other programs on the node. kubelot itself needs
// none of them.
//
// KUBE-IPTABLES-HINT in the table mangle shows programs that bring iptables of their own, such as kube-proxy in its
// image, which of the two kinds (legacy or nftables) the node uses: the one that has the chain. KUBE-FIREWALL drops
// packets to 127.0.0.0/8 from other machines, which kube-proxy's route_localnet would let in (CVE-2020-8558); IPv6 has
// no such hole.
//
// Source: KEP-3178, KubeletConfiguration field makeIPTablesUtilChains.
//
// # Owns
//
// Those chains, and the two rules that lead to KUBE-FIREWALL. It never removes anything: kube-proxy relies on it, and a
// node goes back to a kubelet with it.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/coreos/go-iptables/iptables"

	"kubelot.dev/bus/pause"
)

const (
	// lookEvery is how often it is seen whether the chains are there: firewalld and others flush all tables when they
	// start. The kubelet looks as often.
	lookEvery = time.Minute
	// lockPatience is how long iptables waits for another iptables, in seconds.
	lockPatience = 5
)

const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"
)

// localnet drops what comes from elsewhere to a loopback address. kube-proxy makes the same rule, and must find it
// equal.
var localnet = []string{
	"-m", "comment", "--comment", "block incoming localnet connections",
	"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
}

// tables are one family's tables, as far as they are needed.
type tables interface {
	ChainExists(table, chain string) (bool, error)
	NewChain(table, chain string) error
	Exists(table, chain string, rule ...string) (bool, error)
	Insert(table, chain string, position int, rule ...string) error
	Append(table, chain string, rule ...string) error
}

// family is IPv4 or IPv6.
type family struct {
	name string
	// localnet is true where loopback addresses of others are to be dropped.
	localnet bool
	open     func() (tables, error)
}

var families = []family{
	{"IPv4", true, opener(iptables.ProtocolIPv4)},
	{"IPv6", false, opener(iptables.ProtocolIPv6)},
}

func opener(protocol iptables.Protocol) func() (tables, error) {
	return func() (tables, error) {
		return iptables.New(iptables.IPFamily(protocol), iptables.Timeout(lockPatience))
	}
}

// Run makes the chains, and makes them again where somebody has removed them, until ctx ends. What can't be made is
// logged once: pods run without it.
func Run(ctx context.Context, log *slog.Logger) { run(ctx, families, log) }

func run(ctx context.Context, families []family, log *slog.Logger) {
	said := map[string]string{}
	for ctx.Err() == nil {
		for _, f := range families {
			made, err := f.keep()
			text := fmt.Sprint(err)
			switch {
			case err == nil && made:
				log.Info("iptables chains of the kubelet made", "family", f.name)
			case errors.Is(err, exec.ErrNotFound) && said[f.name] != text:
				log.Info("no iptables on this node, so none of its programs needs the kubelet's chains", "family", f.name)
			case err != nil && said[f.name] != text:
				log.Warn("iptables chains of the kubelet can't be made, trying again each minute; kube-proxy may take the other "+
					"kind of iptables than the node", "family", f.name, "error", err)
			}
			said[f.name] = text
		}
		pause.For(ctx, lookEvery)
	}
}

// keep makes what is missing and reports whether anything was.
func (f family) keep() (made bool, err error) {
	t, err := f.open()
	if err != nil {
		return false, err
	}
	k := keeper{tables: t}
	k.chain("mangle", hintChain)
	if f.localnet {
		k.chain("filter", firewallChain)
		k.rule(k.first, "OUTPUT", "-j", firewallChain)
		k.rule(k.first, "INPUT", "-j", firewallChain)
		k.rule(k.last, firewallChain, localnet...)
	}
	return k.made, k.err
}

// keeper makes what is missing until something fails.
type keeper struct {
	tables
	made bool
	err  error
}

func (k *keeper) chain(table, name string) {
	k.ensure("chain "+name+" of "+table, func() (bool, error) { return k.ChainExists(table, name) },
		func() error { return k.NewChain(table, name) })
}

func (k *keeper) rule(add func(chain string, rule []string) error, chain string, rule ...string) {
	k.ensure("rule of "+chain, func() (bool, error) { return k.Exists("filter", chain, rule...) },
		func() error { return add(chain, rule) })
}

func (k *keeper) first(chain string, rule []string) error {
	return k.Insert("filter", chain, 1, rule...)
}

func (k *keeper) last(chain string, rule []string) error { return k.Append("filter", chain, rule...) }

func (k *keeper) ensure(what string, exists func() (bool, error), add func() error) {
	if k.err != nil {
		return
	}
	is, err := exists()
	if err == nil && !is {
		k.made, err = true, add()
	}
	if err != nil {
		k.err = fmt.Errorf("%s: %w", what, err)
	}
}
