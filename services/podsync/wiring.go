package podsync

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/podsync/internal/cgroups"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/kernel"
	"kubelot.dev/services/podsync/internal/meter"
	"kubelot.dev/services/podsync/internal/pulled"
)

// newCgroups makes the cgroup manager that the configuration asks for.
func newCgroups(cfg *config.Config, driver string, m *meter.Meter) (*cgroups.Manager, error) {
	k := &cfg.Kubelet
	if k.FailCgroupV1 != nil && *k.FailCgroupV1 && !cgroups.Unified() {
		return nil, errors.New("this machine has cgroup v1 and the configuration's failCgroupV1 is true (its default): boot with cgroup v2, or set failCgroupV1: false")
	}
	c := cgroups.Config{
		Driver: driver, Root: k.CgroupRoot,
		PerQOS:      k.CgroupsPerQOS == nil || *k.CgroupsPerQOS,
		EnforcePods: enforces(k.EnforceNodeAllocatable, "pods"),
		CPUCFSQuota: k.CPUCFSQuota == nil || *k.CPUCFSQuota,
		Observe:     m.Cgroup,
	}
	m.CgroupVersion(cgroups.Unified())
	if p := k.CPUCFSQuotaPeriod; p != nil {
		c.CPUCFSQuotaPeriod = p.Duration
	}
	if p := k.PodPidsLimit; p != nil {
		c.PodPidsLimit = *p
	}
	return cgroups.New(c)
}

// reservedCgroups are the cgroups of reserved resources that the configuration wants held to them.
func reservedCgroups(cfg *config.Config) []cgroups.Reserved {
	k := &cfg.Kubelet
	var all []cgroups.Reserved
	for _, r := range []struct {
		name, cgroup string
		list         map[string]string
	}{
		{"system-reserved", k.SystemReservedCgroup, k.SystemReserved},
		{"kube-reserved", k.KubeReservedCgroup, k.KubeReserved},
	} {
		compressible := enforces(k.EnforceNodeAllocatable, r.name+"-compressible")
		if compressible || enforces(k.EnforceNodeAllocatable, r.name) {
			all = append(all, cgroups.Reserved{Cgroup: r.cgroup, List: config.Resources(r.list), Compressible: compressible})
		}
	}
	return all
}

func kernelOptions(cfg *config.Config) kernel.Options {
	k := &cfg.Kubelet
	return kernel.Options{FailSwapOn: k.FailSwapOn != nil && *k.FailSwapOn, Protect: k.ProtectKernelDefaults}
}

// imageConfig are the pull settings. Pulls are parallel, at most image.DefaultMaxParallel, unless the configuration asks for
// serial ones in so many words (serializeImagePulls: true): the kubelet's default of serial pulls is the one that its
// users complain of most.
func imageConfig(cfg *config.Config) image.Config {
	k := &cfg.Kubelet
	c := image.Config{Burst: int(k.RegistryBurst), CredentialDirs: credentialDirs(cfg.RootDir)}
	if k.RegistryPullQPS != nil {
		c.QPS = float64(*k.RegistryPullQPS)
	}
	if k.MaxParallelImagePulls != nil {
		c.MaxParallel = int(*k.MaxParallelImagePulls)
	}
	if k.SerializeImagePulls != nil && *k.SerializeImagePulls {
		c.MaxParallel = 1
	}
	return c
}

// pullConfig is what decides who may use images that are on the node (KEP-2535).
func pullConfig(cfg *config.Config, m *meter.Meter, log *slog.Logger) pulled.Config {
	k := &cfg.Kubelet
	return pulled.Config{
		RootDir: cfg.RootDir, Log: log, Checked: m.PullChecked, Kept: m.PullRecords,
		Policy: pulled.Policy{Kind: k.ImagePullCredentialsVerificationPolicy, Allowed: k.PreloadedImagesVerificationAllowlist},
	}
}

// credentialDirs are where the node's own registry credentials are looked for, in the kubelet's order.
func credentialDirs(rootDir string) []string {
	dirs := []string{rootDir}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"), home)
	}
	return append(dirs, "/.docker", "/")
}

func userNSLength(u *kubeletv1beta1.UserNamespaces) uint32 {
	if u != nil && u.IDsPerPod != nil {
		return uint32(*u.IDsPerPod)
	}
	return 65536
}

// execer gives hooks the part of ExecSync that they need.
type execer struct{ client *cri.Client }

func (e execer) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	resp, err := e.client.ExecSync(ctx, id, command, timeout)
	if err != nil {
		return nil, nil, 0, err
	}
	return resp.GetStdout(), resp.GetStderr(), resp.GetExitCode(), nil
}

// ordered is a set of pods in the order of their arrival.
type ordered struct {
	order []string
	pods  map[string]*corev1.Pod
	// told are the pods of the last list, with their grace periods of that time; nil for a pod that wasn't deleted.
	told map[string]*int64
}

func newOrdered() *ordered {
	return &ordered{pods: map[string]*corev1.Pod{}, told: map[string]*int64{}}
}

func (o *ordered) set(pod *corev1.Pod) {
	uid := string(pod.UID)
	if o.pods[uid] == nil {
		o.order = append(o.order, uid)
	}
	o.pods[uid] = pod
}

func (o *ordered) remove(uid string) {
	if o.pods[uid] == nil {
		return
	}
	delete(o.pods, uid)
	delete(o.told, uid)
	i := slices.Index(o.order, uid)
	o.order = slices.Delete(o.order, i, i+1)
}

// gatherShare is how many times as long changes are gathered as handing over a set took, and gatherMost the most of
// it. Each set costs its taker something for every pod of the node: a thousand pods that start at once change
// thousands of times.
const gatherShare, gatherMost = 9, 200 * time.Millisecond

// gather hands over all pods after a change, once the first list is complete. Changes that come while a set is
// taken, and for some time in proportion after it, go into the next one.
func gather(changes <-chan kube.Change[corev1.Pod], handle func([]*corev1.Pod)) {
	pods := newOrdered()
	synced, changed := false, false
	var rest <-chan time.Time // nil when a set may be handed over
	hand := func() {
		begin := time.Now()
		handle(pods.list())
		changed, rest = false, time.After(min(gatherShare*time.Since(begin), gatherMost))
	}
	for {
		select {
		case change, open := <-changes:
			if !open {
				if synced && changed {
					hand()
				}
				return
			}
			changed = true
			switch {
			case change.Synced:
				synced = true
			case change.Deleted:
				if synced && pods.endsSooner(change.Object) {
					hand()
					changed = true
				}
				pods.remove(string(change.Object.UID))
			default:
				pods.set(change.Object)
			}
		case <-rest:
			rest = nil
		}
		if synced && changed && rest == nil {
			hand()
		}
	}
}

// endsSooner takes in the last state of a pod that is gone, and reports whether its grace period is shorter than the list
// said: a pod that is deleted by force is changed and removed in one moment. A pod that was in no list needs no end.
func (o *ordered) endsSooner(last *corev1.Pod) bool {
	told, known := o.told[string(last.UID)]
	if !known || last.DeletionGracePeriodSeconds == nil || told != nil && *told <= *last.DeletionGracePeriodSeconds {
		return false
	}
	o.set(last)
	return true
}

func (o *ordered) list() []*corev1.Pod {
	list := make([]*corev1.Pod, 0, len(o.order))
	for _, uid := range o.order {
		list = append(list, o.pods[uid])
		o.told[uid] = o.pods[uid].DeletionGracePeriodSeconds
	}
	return list
}
