package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/selinux"
)

// Daemon is kubelot-volume.
var Daemon = daemon.Spec{
	Name:     "volume",
	Doc:      "Mounts the volumes of pods and keeps their files up to date.",
	Contract: Contract,
	Run:      run,
	// Much of its work is waiting.
	Processors: 1,
}

// run runs the service with the API server, as soon as there are credentials for it. Before that, and on a
// node without an API server, it runs with the volumes that need none: what it mounted then is adopted later.
func run(ctx context.Context, env daemon.Env) error {
	if err := mounts.EnsureShared(env.Config.RootDir); err != nil {
		env.Log.Error("can't share mounts between containers and the node: volume mounts with mountPropagation will fail",
			"error", err)
	}
	warnOfSwap(env, "/proc/swaps", mounts.Noswap)
	health := daemon.JoinHealth(env.Health)
	env.Health = health.Part()
	ports, err := newPorts(env)
	if err != nil {
		return err
	}
	ports.Drivers = driver.New()
	defer ports.Drivers.Close()
	if err := daemon.RegisterMetrics(env.Metrics, "CSI drivers and SELinux labels",
		append(ports.Labels.Metrics(), ports.Drivers.Metrics())...); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var registering sync.WaitGroup
	registering.Go(func() { runRegistry(ctx, env, ports.Drivers) })
	registering.Go(func() { runReport(ctx, env, ports.Drivers, health.Part()) })
	defer registering.Wait()
	defer stop(errors.New("the volume daemon stops"))
	if env.Config.Standalone() {
		return runWithout(ctx, env, ports, errors.New("it needs an API server, and this node runs without one"))
	}
	client, err := kube.NewClient(env.Config.Kubeconfig, options(env))
	if errors.Is(err, fs.ErrNotExist) {
		client, err = runUntilClient(ctx, env, ports, err)
	}
	if err != nil || ended(ctx) {
		return err
	}
	defer client.Close()
	return runWith(ctx, env, ports, client)
}

// newPorts are the ports without the API server. A process has one set of them.
func newPorts(env daemon.Env) (Ports, error) {
	m, err := newMetrics(env.Metrics)
	everyMode := config.Enabled(&env.Config.Kubelet, config.GateSELinuxMount)
	return Ports{
		State:  topic.VolumeState.Writer(env.Bus),
		Events: env.Events, Health: env.Health, Pulse: env.Pulse,
		Metrics: m, Labels: selinux.NewBook(selinux.OfNode(), everyMode), Kernel: mounts.Kernel(),
	}, err
}

func options(env daemon.Env) kube.Options {
	k := env.Config.Kubelet
	return kube.Options{
		Daemon: "volume", Version: daemon.Version(), ContentType: k.ContentType, Certificate: env.Config.ClientCertificate,
		Log: env.Log,
	}.WithLimits(k.KubeAPIQPS, k.KubeAPIBurst)
}

// runUntilClient runs without the API server until its credentials are there.
func runUntilClient(ctx context.Context, env daemon.Env, ports Ports, why error) (*kube.Client, error) {
	running, stop := context.WithCancelCause(ctx)
	var client *kube.Client
	var err error
	var waiting sync.WaitGroup
	waiting.Go(func() {
		client, err = kube.WaitClient(ctx, env.Config.Kubeconfig, options(env))
		stop(errors.New("the credentials for the API server are available"))
	})
	runErr := runWithout(running, env, ports, fmt.Errorf("it needs the API server: %w", why))
	stop(runErr)
	waiting.Wait()
	if ended(ctx) {
		return client, nil
	}
	return client, errors.Join(err, runErr)
}

func ended(ctx context.Context) bool { return ctx.Err() != nil }

func runWithout(ctx context.Context, env daemon.Env, ports Ports, why error) error {
	none := absent{why}
	ports.Drivers.Unknown(why)
	ports.ConfigMaps, ports.Secrets, ports.Tokens = absentKind[corev1.ConfigMap]{none},
		absentKind[corev1.Secret]{none}, none
	ports.Claims = none
	return runService(ctx, env, ports, none, false)
}

func runWith(ctx context.Context, env daemon.Env, ports Ports, client *kube.Client) error {
	strategy := kube.Strategy(env.Config.Kubelet.ConfigMapAndSecretChangeDetectionStrategy)
	configMaps, secrets := client.ConfigMaps(strategy), client.Secrets(strategy)
	ctx, stop := context.WithCancel(ctx)
	var caches sync.WaitGroup
	caches.Go(func() { logEnd(env.Log, configMaps.Run(ctx)) })
	caches.Go(func() { logEnd(env.Log, secrets.Run(ctx)) })
	ports.ConfigMaps, ports.Secrets, ports.Tokens = configMaps, secrets, client
	ports.Claims = client
	ports.Drivers.Unknown(driver.ErrUnread)
	caches.Go(func() { followDrivers(client.WatchCSIDrivers(ctx), ports.Drivers) })
	err := runService(ctx, env, ports, online{client, kube.StorageOf(client)}, true)
	stop()
	caches.Wait()
	return err
}

// online is the API server for CSI drivers.
type online struct {
	*kube.Client
	kube.Storage
}

func logEnd(log *slog.Logger, err error) {
	if err != nil {
		log.Error("the watch of objects ended", "error", err)
	}
}

// absent stands in for the API server where there is none (yet).
type absent struct{ why error }

func (a absent) CreateToken(context.Context, string, string,
	*authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return nil, a.why
}

func (a absent) GetSecret(context.Context, string, string) (*corev1.Secret, error) { return nil, a.why }

func (a absent) GetVolumeAttachment(context.Context, string) (*storagev1.VolumeAttachment, error) {
	return nil, a.why
}

func (a absent) GetPersistentVolumeClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return nil, a.why
}

func (a absent) PatchPersistentVolumeClaimStatus(context.Context, string, string, []byte,
) (*corev1.PersistentVolumeClaim, error) {
	return nil, a.why
}

func (a absent) GetPersistentVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	return nil, a.why
}

type absentKind[T any] struct{ absent }

func (a absentKind[T]) Get(context.Context, types.NamespacedName) (*T, error) { return nil, a.why }
func (absentKind[T]) Hold(string, ...types.NamespacedName)                    {}
func (absentKind[T]) Changes() <-chan types.NamespacedName                    { return nil }
