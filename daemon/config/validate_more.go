package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// images checks the collection and verification of images.
func (c *checker) images(k *kubeletv1beta1.KubeletConfiguration) {
	least, most := k.ImageMinimumGCAge.Duration, k.ImageMaximumGCAge.Duration
	c.check(least >= 0, "imageMinimumGCAge", least, "must not be negative")
	c.check(most >= 0, "imageMaximumGCAge", most, "must not be negative")
	c.check(most <= 0 || most > least, "imageMaximumGCAge", most,
		fmt.Sprintf("must be greater than imageMinimumGCAge, %s", least))
	policy, allowed := k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist
	c.oneOf("imagePullCredentialsVerificationPolicy", string(policy), string(kubeletv1beta1.NeverVerify),
		string(kubeletv1beta1.NeverVerifyPreloadedImages), string(kubeletv1beta1.NeverVerifyAllowlistedImages),
		string(kubeletv1beta1.AlwaysVerify))
	c.check(len(allowed) == 0 || policy == kubeletv1beta1.NeverVerifyAllowlistedImages,
		"preloadedImagesVerificationAllowlist", allowed,
		"needs imagePullCredentialsVerificationPolicy to be NeverVerifyAllowlistedImages")
	for _, pattern := range allowed {
		name := strings.TrimSuffix(pattern, "/*")
		last := name[strings.LastIndexByte(name, '/')+1:]
		c.check(name != "" && strings.TrimSpace(pattern) == pattern && !strings.ContainsAny(name, "*@") &&
			!strings.Contains(last, ":"),
			"preloadedImagesVerificationAllowlist", strconv.Quote(pattern),
			"want an image without tag and digest, or a path that ends in /*")
	}
}

// enforcement checks what reserved resources are held to.
func (c *checker) enforcement(k *kubeletv1beta1.KubeletConfiguration) {
	enforced := func(name string) bool { return slices.Contains(k.EnforceNodeAllocatable, name) }
	for _, r := range []struct{ name, cgroup, path string }{
		{"system-reserved", k.SystemReservedCgroup, "systemReservedCgroup"},
		{"kube-reserved", k.KubeReservedCgroup, "kubeReservedCgroup"},
	} {
		whole, compressible := enforced(r.name), enforced(r.name+"-compressible")
		c.check(!whole && !compressible || r.cgroup != "", "enforceNodeAllocatable", strconv.Quote(r.name),
			"needs the cgroup's name in "+r.path)
		c.check(!whole || !compressible, "enforceNodeAllocatable", strconv.Quote(r.name),
			fmt.Sprintf("can't go together with %s-compressible", r.name))
		c.check(r.cgroup == "" || k.ReservedSystemCPUs == "", r.path, strconv.Quote(r.cgroup),
			"can't be used with reservedSystemCPUs")
	}
	c.check(k.SystemCgroups == "" || k.CgroupRoot != "", "systemCgroups", strconv.Quote(k.SystemCgroups),
		"needs cgroupRoot")
	c.check(k.EnableSystemLogQuery == nil || !*k.EnableSystemLogQuery || *k.EnableSystemLogHandler, "enableSystemLogQuery",
		true, "needs enableSystemLogHandler")
}

// passive checks fields that kubelot has no use for, or none yet: the kubelet would refuse them, and the file may be
// for both.
func (c *checker) passive(k *kubeletv1beta1.KubeletConfiguration) {
	c.within("iptablesMasqueradeBit", int64(*k.IPTablesMasqueradeBit), 0, 31)
	c.within("iptablesDropBit", int64(*k.IPTablesDropBit), 0, 31)
	c.within("oomScoreAdj", int64(*k.OOMScoreAdj), -1000, 1000)
	c.notNegative("maxOpenFiles", k.MaxOpenFiles)
	c.oneOf("hairpinMode", k.HairpinMode, kubeletv1beta1.HairpinNone, kubeletv1beta1.HairpinVeth,
		kubeletv1beta1.PromiscuousBridge)
	c.oneOf("topologyManagerPolicy", k.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy,
		kubeletv1beta1.BestEffortTopologyManagerPolicy,
		kubeletv1beta1.RestrictedTopologyManagerPolicy, kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy)
	c.oneOf("topologyManagerScope", k.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope,
		kubeletv1beta1.PodTopologyManagerScope)
	whole, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	for path, period := range map[string]time.Duration{
		"shutdownGracePeriod":             whole,
		"shutdownGracePeriodCriticalPods": critical,
	} {
		c.check(period == 0 || period >= time.Second, path, period, "want zero, or 1s or more")
	}
	c.check(critical <= whole, "shutdownGracePeriodCriticalPods", critical,
		fmt.Sprintf("must not be longer than shutdownGracePeriod, %s", whole))
	c.check(len(k.ShutdownGracePeriodByPodPriority) == 0 || whole == 0 && critical == 0,
		"shutdownGracePeriodByPodPriority", len(k.ShutdownGracePeriodByPodPriority),
		"can't go together with shutdownGracePeriod")
	for _, problem := range tracingapi.ValidateTracingConfiguration(k.Tracing, nil, field.NewPath("tracing")) {
		c.problems = append(c.problems, fmt.Errorf("%w%s", problem, c.where(problem.Field)))
	}
}

func (c *checker) logging(k *kubeletv1beta1.KubeletConfiguration) {
	l := &k.Logging
	c.oneOf("logging.format", l.Format, "text", "json")
	c.positive("logging.flushFrequency", l.FlushFrequency.Duration.Duration)
	c.check(len(l.VModule) == 0 || l.Format == "text", "logging.vmodule", len(l.VModule),
		"is possible with the text format only")
	c.check(!l.Options.JSON.SplitStream && !l.Options.Text.SplitStream, "logging.options", "splitStream",
		"is an alpha feature that kubelot doesn't have")
}

// memory checks the memory that is reserved and how it is protected.
func (c *checker) memory(k *kubeletv1beta1.KubeletConfiguration) {
	factor := *k.MemoryThrottlingFactor
	c.check(factor > 0 && factor <= 1, "memoryThrottlingFactor", factor, "want more than 0, and 1 at most")
	c.oneOf("memoryReservationPolicy", string(k.MemoryReservationPolicy),
		string(kubeletv1beta1.NoneMemoryReservationPolicy), string(kubeletv1beta1.TieredReservationMemoryReservationPolicy))
	c.check(k.MemoryReservationPolicy == kubeletv1beta1.NoneMemoryReservationPolicy || Enabled(k, GateMemoryQoS),
		"memoryReservationPolicy", k.MemoryReservationPolicy, "needs the feature gate MemoryQoS")
	for _, name := range slices.Sorted(maps.Keys(k.QOSReserved)) {
		path, text := "qosReserved."+name, k.QOSReserved[name]
		c.check(name == string(corev1.ResourceMemory), path, strconv.Quote(text), "only memory can be reserved")
		_, err := percentage(text)
		c.check(err == nil, path, strconv.Quote(text), "want a percentage, from 0% to 100%")
	}
	type place struct {
		node int32
		name corev1.ResourceName
	}
	seen := map[place]bool{}
	for _, r := range k.ReservedMemory {
		for name, amount := range r.Limits {
			value := fmt.Sprintf("%s of %s on NUMA node %d", amount.String(), name, r.NumaNode)
			c.check(name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix),
				"reservedMemory", value, "only memory and hugepages-<size> can be reserved")
			c.check(!amount.IsZero(), "reservedMemory", value, "must not be zero")
			c.check(!seen[place{r.NumaNode, name}], "reservedMemory", value, "is there twice")
			seen[place{r.NumaNode, name}] = true
		}
	}
}
