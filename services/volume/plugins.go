package volume

import (
	"context"
	"errors"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/sleep"
	"kubelot.dev/kube"
	"kubelot.dev/services/volume/internal/attach"
	"kubelot.dev/services/volume/internal/csi"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/registry"
)

// registryPause is the pause before the registration of plugins is begun again after it failed.
const registryPause = 5 * time.Second

// runRegistry finds plugins until ctx ends. That it fails is no reason for pods not to get their other volumes.
func runRegistry(ctx context.Context, env daemon.Env, drivers *driver.Drivers) {
	plugins, wake := topic.PluginRegistered.Writer(env.Bus), sleep.Waker(env.Config.RunDir, "resource", env.Log)
	plugins.OnLate(wake)
	writer := waking{plugins, wake}
	for ctx.Err() == nil {
		if err := registerPlugins(ctx, env, writer, drivers); err != nil && ctx.Err() == nil {
			env.Log.Error("plugins can't register: no new CSI driver or device plugin works until that is possible, retrying",
				"error", err)
		}
		pause.For(ctx, registryPause)
	}
}

// waking wakes the resource daemon, if it sleeps, for a plugin that it calls.
type waking struct {
	registry.Publisher
	wake func()
}

// Set implements registry.Publisher.
func (w waking) Set(key string, p topic.Plugin) error {
	err := w.Publisher.Set(key, p)
	if p.Type != topic.CSIPlugin {
		w.wake()
	}
	return err
}

func registerPlugins(ctx context.Context, env daemon.Env, writer registry.Publisher, drivers *driver.Drivers) error {
	reading, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("the bus has not answered"))
	defer cancel()
	published, err := topic.PluginRegistered.Read(reading, env.Bus)
	if err != nil {
		return err
	}
	return registry.New(env.Config.RootDir, registry.Ports{
		Publisher: writer, Published: published, Changed: drivers.Registered, Watched: env.Pulse.Of, Log: env.Log,
	}).Run(ctx)
}

// runReport publishes what CSI drivers say of this node, until ctx ends.
func runReport(ctx context.Context, env daemon.Env, drivers *driver.Drivers, health daemon.HealthReporter) {
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("the bus has not answered"))
		published, err := topic.CSIDriver.Read(reading, env.Bus)
		cancel()
		if err == nil {
			drivers.Report(ctx, driver.ReportPorts{
				Out: topic.CSIDriver.Writer(env.Bus), Published: published, Health: health, Log: env.Log,
			})
			return
		}
		env.Log.Warn("can't read what was published of CSI drivers, retrying", "error", err)
		pause.For(ctx, registryPause)
	}
}

// apiServer is what CSI drivers get from the API server.
type apiServer interface {
	plugin.Tokens
	csi.Secrets
	attach.Attachments
}

// runService runs the daemon with volumes of CSI drivers. In a cluster it tells which of them the node uses.
func runService(ctx context.Context, env daemon.Env, ports Ports, api apiServer, inCluster bool) error {
	ports.Labels.Clear()
	attaches := env.Config.Kubelet.EnableControllerAttachDetach
	ports.CSI = csi.New(env.Config.RootDir, env.Config.NodeName, ports.Drivers, csi.Ports{
		Tokens: api, Secrets: api, Attachments: api, Log: env.Log,
		Alone: !inCluster || attaches != nil && !*attaches, Labels: ports.Labels,
	})
	service := New(env.Config.RootDir, env.Bus, ports, env.Log) // it notes the disks in use before they are published
	ctx, stop := context.WithCancel(plugin.Observed(ctx, ports.Metrics.observe))
	var working sync.WaitGroup
	working.Go(func() { ports.CSI.Run(ctx) })
	if inCluster {
		working.Go(func() { csi.PublishInUse(ctx, ports.CSI, topic.CSIVolumes.Writer(env.Bus)) })
	}
	err := service.Run(ctx)
	stop()
	working.Wait()
	return err
}

// followDrivers tells the drivers what the cluster says of them, until the watch ends.
func followDrivers(watch <-chan kube.Change[storagev1.CSIDriver], drivers *driver.Drivers) {
	for c := range watch {
		switch {
		case c.Synced:
			drivers.Synced()
		case c.Deleted:
			drivers.SetObject(c.Object.Name, nil)
		default:
			drivers.SetObject(c.Object.Name, c.Object)
		}
	}
}
