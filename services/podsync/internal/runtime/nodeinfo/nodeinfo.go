// Package nodeinfo keeps what is known of the node in the forms that podsync's parts want it in.
package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/node/objects"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/dns"
)

// Info is what is known of the node. Its readers may be in any goroutine; each setter belongs to one.
type Info struct {
	cfg     *config.Config
	objects *objects.Objects
	log     *slog.Logger
	dns     dns.Node
	renewal renewal

	node    atomic.Pointer[corev1.Node]
	machine atomic.Pointer[topic.Machine]
	runtime atomic.Pointer[topic.Runtime]
	shared  atomic.Pointer[Shared]
	cri     atomic.Pointer[criconfig.Node]
}

// New reads the resolver configuration; everything else arrives by the setters.
func New(cfg *config.Config, o *objects.Objects, log *slog.Logger) (*Info, error) {
	f := &Info{cfg: cfg, objects: o, log: log, renewal: renewal{asked: map[string]time.Time{}}}
	f.dns = dns.Node{ClusterDNS: cfg.Kubelet.ClusterDNS, ClusterDomain: cfg.Kubelet.ClusterDomain, IPs: cfg.NodeIPs}
	_, err := f.resolv()
	return f, err
}

// resolv reads the resolver configuration that resolvConf names; it may change while the node runs.
func (f *Info) resolv() (*dns.Resolv, error) {
	path := f.cfg.Kubelet.ResolverConfig
	if path == nil || *path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return nil, fmt.Errorf("read the resolver configuration that resolvConf names: %w", err)
	}
	resolv, err := dns.ParseResolvConf(text)
	if err != nil {
		f.log.Warn("can't use part of the resolver configuration", "file", *path, "error", err)
	}
	return resolv, nil
}

// Ready reports whether enough is known to admit pods.
func (f *Info) Ready() bool { return f.node.Load() != nil && f.cri.Load() != nil }

// SetNode takes the Node object.
func (f *Info) SetNode(n *corev1.Node) { f.node.Store(n) }

// SetRuntime takes the runtime's facts.
func (f *Info) SetRuntime(r *topic.Runtime) { f.runtime.Store(r) }

// Shared is what containers use that have no CPUs or memory of their own, as lists; empty where nobody decides on that.
type Shared struct{ CPUs, MemoryNodes string }

// SetShared takes what containers share.
func (f *Info) SetShared(s Shared) { f.shared.Store(&s) }

// Shared is what containers share.
func (f *Info) Shared() Shared {
	if s := f.shared.Load(); s != nil {
		return *s
	}
	return Shared{}
}

// SharedCPUs are the CPUs of containers that have none of their own, as a list; empty for all.
func (f *Info) SharedCPUs() string { return f.Shared().CPUs }

// SetMachine takes the machine's facts, and reads others from sysfs, which may take its time.
func (f *Info) SetMachine(m *topic.Machine) {
	f.machine.Store(m)
	node := f.configured()
	node.MemoryCapacity, node.SwapCapacity, node.CgroupV2 = m.MemoryBytes, m.SwapBytes, m.CgroupVersion == 2
	node.SwapController, node.SwapBehavior = cgroups.SwapController(), f.cfg.Kubelet.MemorySwap.SwapBehavior
	node.SingleProcessOOMKill = m.CgroupVersion != 2
	if s := f.cfg.Kubelet.SingleProcessOOMKill; s != nil {
		node.SingleProcessOOMKill = *s
	}
	node.MemoryQoS = f.memoryQoS(m)
	for kib := range m.HugePages {
		node.HugePageSizes = append(node.HugePageSizes, cgroups.PageSize(int64(kib)<<10))
	}
	slices.Sort(node.HugePageSizes)
	node.SELinux = exists("/sys/fs/selinux/enforce")
	// The kubelet masks these as well as the runtime's usual paths: they are counters that show other tenants' load.
	node.MaskedPaths, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	f.cri.Store(node)
}

// configured is what the configuration says of the node.
func (f *Info) configured() *criconfig.Node {
	k := &f.cfg.Kubelet
	node := &criconfig.Node{
		RootDir: f.cfg.RootDir, PodLogsDir: f.cfg.PodLogsDir, ContainerLogsDir: f.cfg.ContainerLogsDir,
		ClusterDomain:  k.ClusterDomain,
		SeccompDefault: k.SeccompDefault != nil && *k.SeccompDefault,
		CPUCFSQuota:    k.CPUCFSQuota != nil && *k.CPUCFSQuota,

		QuotaWithExclusiveCPUs: !config.Enabled(k, config.GateNoQuotaWithExclusiveCPUs),
	}
	if p := k.CPUCFSQuotaPeriod; p != nil {
		node.CPUCFSQuotaPeriod = p.Duration
	}
	return node
}

// memoryQoS is how the memory of containers is protected and throttled on the machine.
func (f *Info) memoryQoS(m *topic.Machine) criconfig.MemoryQoS {
	k := &f.cfg.Kubelet
	pods := cgroups.ConfigOf(k).Memory
	if m.CgroupVersion != 2 || !pods.On || k.MemoryThrottlingFactor == nil {
		return criconfig.MemoryQoS{}
	}
	allocatable := cgroups.NodeLimits(corev1.ResourceList{corev1.ResourceMemory: config.Bytes(m.MemoryBytes)},
		config.Reserved(k))
	return criconfig.MemoryQoS{
		On: true, Tiered: pods.Tiered,
		Throttling:  *k.MemoryThrottlingFactor,
		Allocatable: allocatable.Memory().Value(),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// CRI are the facts that CRI configurations are built from.
func (f *Info) CRI() *criconfig.Node {
	if n := f.cri.Load(); n != nil {
		return n
	}
	return f.configured()
}

// DNS are the facts that pods' resolvers are built from. A sandbox keeps its resolver for life, so a resolver
// configuration that can't be read is an error, not an empty one.
func (f *Info) DNS() (dns.Node, error) {
	node := f.dns
	var err error
	if node.Resolv, err = f.resolv(); err != nil {
		return dns.Node{}, err
	}
	if len(node.IPs) == 0 {
		for _, ip := range f.HostIPs() {
			if addr, err := netip.ParseAddr(ip); err == nil {
				node.IPs = append(node.IPs, addr)
			}
		}
	}
	return node, nil
}

// Node is the Node object; nil until it is known.
func (f *Info) Node() *corev1.Node { return f.node.Load() }

// HostIPs are the node's addresses as pods have them; none until the Node is known.
func (f *Info) HostIPs() []string {
	n := f.node.Load()
	if n == nil {
		return nil
	}
	return podspec.HostIPs(n)
}

// Capacity is what the node's cgroups are made for; nil as long as the node or the machine isn't known. CPUs, memory,
// huge pages and processes are the machine's. The Node object may say less than the machine has, as after the API
// server was restored from a backup, and the kernel would kill pods that are held to that. Anything else is the Node's.
func (f *Info) Capacity() corev1.ResourceList {
	n, m := f.node.Load(), f.machine.Load()
	if n == nil || m == nil {
		return nil
	}
	list := config.Capacity(m.NumCores, m.MemoryBytes, m.HugePages)
	for name, q := range n.Status.Capacity {
		if _, known := list[name]; !known && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			list[name] = q
		}
	}
	if m.PIDLimit > 0 {
		list[cgroups.PIDs] = *resource.NewQuantity(m.PIDLimit, resource.DecimalSI)
	}
	return list
}

// Allocatable are the node's allocatable resources.
func (f *Info) Allocatable() corev1.ResourceList {
	if n := f.node.Load(); n != nil {
		return n.Status.Allocatable
	}
	return nil
}

// RuntimeName is the prefix of container IDs in statuses.
func (f *Info) RuntimeName() string {
	if r := f.runtime.Load(); r != nil && r.Name != "" {
		return strings.ToLower(r.Name)
	}
	return "containerd"
}

// MaxBackoff caps the crash back-off (KEP-5593).
func (f *Info) MaxBackoff() time.Duration {
	return f.cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// NetworkProblem is why the runtime can't give pods a network, in the kubelet's words; empty where it can, or while
// nothing is known of it.
func (f *Info) NetworkProblem() string {
	r := f.runtime.Load()
	if r == nil || !r.Reachable || r.NetworkReady.Status {
		return ""
	}
	return fmt.Sprintf("container runtime network not ready: NetworkReady=false reason:%s message:%s",
		r.NetworkReady.Reason, r.NetworkReady.Message)
}

// Handler is the runtime handler of a RuntimeClass.
func (f *Info) Handler(ctx context.Context, class string) (string, error) {
	return f.objects.Handler(ctx, class)
}

// UserNamespaces reports whether the runtime says that the handler can give pods user namespaces (KEP-127).
func (f *Info) UserNamespaces(handler string) (bool, error) {
	r := f.runtime.Load()
	if r == nil {
		return false, errors.New("the runtime's features are not known yet (node.runtime, by kubelot-pleg)")
	}
	for _, h := range r.Handlers {
		if h.Name == handler {
			return h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces, nil
		}
	}
	return false, fmt.Errorf("the runtime doesn't say whether its handler %q supports user namespaces: containerd 2.0 "+
		"and later do", handler)
}

// RecursiveReadOnly reports whether the runtime says that the pod's handler can mount read-only recursively.
func (f *Info) RecursiveReadOnly(pod *corev1.Pod) bool {
	r := f.runtime.Load()
	if r == nil {
		return false
	}
	name := ""
	if c := pod.Spec.RuntimeClassName; c != nil && *c != "" {
		var known bool
		if name, known = f.objects.KnownHandler(*c); !known {
			return false
		}
	}
	for _, h := range r.Handlers {
		if h.Name == name && h.Features != nil && h.Features.RecursiveReadOnlyMounts != nil {
			return *h.Features.RecursiveReadOnlyMounts
		}
	}
	return false
}
