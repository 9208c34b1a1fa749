package podsync

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/kube/credentialprovider"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/image/pullrecords"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/node/kernel"
	"kubelot.dev/services/podsync/internal/node/objects"
	"kubelot.dev/services/podsync/internal/node/orphans"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/runtime/nodeinfo"
	"kubelot.dev/services/podsync/internal/worker/executor"
	"kubelot.dev/services/podsync/internal/worker/metrics"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

// How long a call of another daemon may take. One that was killed meanwhile never answers. A device plugin has 30 s.
const (
	subPathsWithin = 30 * time.Second
	preStartWithin = 35 * time.Second
)

// parts are what the dispatcher and its workers are made of.
type parts struct {
	daemon.Env
	clients   Clients
	objects   *objects.Objects
	pulls     *pullrecords.Records
	providers *credentialprovider.Providers
	metrics   *metrics.Metrics
	report    *events.Reporter
	node      *nodeinfo.Info
	cgroups   *cgroups.Manager
	userNS    *executor.UserNamespaces
	settling  func() bool
}

// reloadable are the fields of the configuration that podsync takes while it runs.
var reloadable = []string{"registryPullQPS", "registryBurst"}

// newExecutor returns the executor of the workers' actions.
func (p *parts) newExecutor(turns executor.Turns) *executor.Executor {
	images := imageConfig(p.Config)
	images.Pulled, images.Asked, images.Records = p.metrics.Pulled, p.metrics.ImageAsked, p.pulls
	images.Providers = p.providers
	runtime := p.clients.Runtime
	puller := image.New(images, runtime, p.imageEvent)
	p.Reloads.Take(func(c *config.Config) error {
		puller.SetRate(imageConfig(c))
		return nil
	}, reloadable...)
	return executor.New(executor.Deps{
		Runtime: executor.Runtime{
			Sandboxes: runtime, Containers: runtime, Sizes: runtime, Observe: p.observe,
			Settling: p.settling,
		},
		Node: p.node, Pods: executor.Pods{Cgroups: p.cgroups, UserNS: p.userNS, SubPaths: p.subPaths, PreStart: p.preStart},
		Images: puller, Sources: p.objects, Hooks: p.newHooks(), Turns: turns,
		Reports: executor.Reports{Events: p.report, Metrics: p.metrics, Log: p.Log},
	})
}

// atOnce is how many sandboxes and containers are started at once, and how many are stopped: two for each core of the
// machine, because a start spends part of its time waiting for the disk and the kernel (test/bench finds the best
// number).
func atOnce() int { return 2 * runtime.NumCPU() }

func newTurns() executor.Turns {
	return executor.Turns{Starts: slots.New(atOnce()), Stops: slots.New(atOnce())}
}

// newRemover returns the remover of cgroups and directories of pods that are gone.
func (p *parts) newRemover() *orphans.Remover {
	dirs := orphans.PodDirectories{RootDir: p.Config.RootDir, Removed: p.userNS.Release}
	return &orphans.Remover{Cgroups: p.cgroups, Dirs: dirs, Log: p.Log}
}

func (p *parts) observe(ctx context.Context, uid string, earlier *topic.PodObservation) (topic.PodObservation, error) {
	return observe.PodSince(ctx, p.clients.Runtime, uid, earlier)
}

func (p *parts) subPaths(ctx context.Context, req topic.SubPathRequest) (topic.SubPathReply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, subPathsWithin, errors.New("kubelot-volume has not answered"))
	defer cancel()
	return topic.VolumeSubPath.Do(ctx, p.Bus, req)
}

func (p *parts) preStart(ctx context.Context, req topic.PreStartRequest) (topic.PreStartReply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, preStartWithin, errors.New("kubelot-resource has not answered"))
	defer cancel()
	return topic.ResourcePreStart.Do(ctx, p.Bus, req)
}

func (p *parts) imageEvent(e image.Event) {
	p.report.Event(e.Pod, e.FieldPath, e.Type, e.Reason, e.Message)
}

// newHooks returns the runner of lifecycle hooks. A hook that succeeds only by a fallback is reported to the user.
func (p *parts) newHooks() *hooks.Runner {
	r := hooks.New(execer{p.clients.Runtime})
	r.Warn = func(target hooks.Target, reason, message string) {
		p.report.Event(target.Pod, events.FieldPath(target.Pod, target.Container.Name),
			corev1.EventTypeWarning, reason, message)
		if reason == hooks.ReasonHTTPFallback {
			p.metrics.HTTPInstead()
		}
	}
	r.SleepEnded = p.metrics.SleepEnded
	return r
}

// newCgroups returns the cgroup manager that the configuration asks for. The runtime says which driver it uses.
func newCgroups(cfg *config.Config, m *metrics.Metrics) (*cgroups.Manager, error) {
	k := &cfg.Kubelet
	if k.FailCgroupV1 != nil && *k.FailCgroupV1 && !cgroups.Unified() {
		return nil, errors.New("this machine has cgroup v1 and the configuration's failCgroupV1 is true (its default): " +
			"boot with cgroup v2, or set failCgroupV1: false")
	}
	if k.MemorySwap.SwapBehavior == criconfig.LimitedSwap && !cgroups.Unified() {
		return nil, errors.New("this machine has cgroup v1 and the configuration's memorySwap.swapBehavior is LimitedSwap, " +
			"which only cgroup v2 can do: boot with cgroup v2, or set NoSwap")
	}
	c := cgroups.ConfigOf(k)
	c.Observe, c.Memory.Report = m.Cgroup, m.MemoryProtected
	m.CgroupVersion(cgroups.Unified())
	return cgroups.New(c)
}

func kernelOptions(cfg *config.Config) kernel.Options {
	k := &cfg.Kubelet
	return kernel.Options{
		FailSwapOn: k.FailSwapOn != nil && *k.FailSwapOn, Protect: k.ProtectKernelDefaults,
		MemoryQoS: config.Enabled(k, config.GateMemoryQoS), CgroupV2: cgroups.Unified(),
	}
}

// imageConfig returns the pull settings. The configuration has no number of parallel pulls only where it asks for
// serial ones.
func imageConfig(cfg *config.Config) image.Config {
	k := &cfg.Kubelet
	c := image.Config{Burst: int(k.RegistryBurst), CredentialDirs: image.CredentialDirs(cfg.RootDir)}
	if k.RegistryPullQPS != nil {
		c.QPS = float64(*k.RegistryPullQPS)
	}
	if k.MaxParallelImagePulls != nil {
		c.MaxParallel = int(*k.MaxParallelImagePulls)
	}
	return c
}

// pullConfig returns the settings that decide which pods may use images that are on the node (KEP-2535).
func pullConfig(cfg *config.Config, m *metrics.Metrics, log *slog.Logger) pullrecords.Config {
	k := &cfg.Kubelet
	return pullrecords.Config{
		RootDir: cfg.RootDir, Log: log, Checked: m.PullChecked, Kept: m.PullRecords,
		Policy: pullrecords.Policy{
			Kind:    k.ImagePullCredentialsVerificationPolicy,
			Allowed: k.PreloadedImagesVerificationAllowlist,
		},
	}
}

// openProviders reads the configuration of credential providers. api is nil in standalone mode.
func openProviders(env daemon.Env, api *kube.Client, m *metrics.Metrics) (*credentialprovider.Providers, error) {
	c := env.Config.CredentialProviders
	o := credentialprovider.Options{Config: c.Config, BinDir: c.BinDir, Log: env.Log, Ran: m.ProviderRan}
	if api != nil {
		o.Accounts = kube.ServiceAccounts{Client: api}
	}
	p, err := credentialprovider.Open(o)
	m.ProviderConfig(p.Hash())
	return p, err
}

func userNSLength(u *kubeletv1beta1.UserNamespaces) uint32 {
	if u != nil && u.IDsPerPod != nil {
		return uint32(*u.IDsPerPod)
	}
	return 65536
}

// execer gives hooks the part of ExecSync that they need.
type execer struct{ client *cri.Client }

func (e execer) ExecSync(ctx context.Context, id string, command []string,
	timeout time.Duration,
) (stdout, stderr []byte, exitCode int32, err error) {
	resp, err := e.client.ExecSync(ctx, id, command, timeout)
	if err != nil {
		return nil, nil, 0, err
	}
	return resp.GetStdout(), resp.GetStderr(), resp.GetExitCode(), nil
}
