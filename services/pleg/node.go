package pleg

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
)

const (
	// statusEvery is how often the runtime's health is asked, awayEvery while it doesn't answer.
	statusEvery, awayEvery = 5 * time.Second, time.Second
	// nodeTimeout bounds each of these calls, so that a runtime that hangs is found out within seconds.
	nodeTimeout = 5 * time.Second
	// factsEvery is how often version and configuration are read, imagesEvery the list of images.
	factsEvery, imagesEvery = time.Minute, 2 * time.Minute
	// maxImageNames is the number of names per image that the kubelet reports.
	maxImageNames = 5
)

// prober reads the runtime's identity and health; it belongs to one goroutine.
type prober struct {
	runtime   nodeReader
	maxImages int
	last      topic.Runtime
	factsAt   time.Time
	imagesAt  time.Time
}

// probe reads what is due and returns all that is known. Facts stay known while the runtime is away.
func (p *prober) probe(ctx context.Context, now time.Time) topic.Runtime {
	status, err := call(ctx, func(ctx context.Context) (*runtimeapi.StatusResponse, error) {
		return p.runtime.Status(ctx, false)
	})
	if err == nil && (!p.last.Reachable || now.Sub(p.factsAt) >= factsEvery) {
		if err = p.readFacts(ctx); err == nil {
			p.factsAt = now
		}
	}
	if err != nil {
		p.last.Reachable, p.last.Message = false, err.Error()
		return p.last
	}
	p.last.Reachable, p.last.Message = true, ""
	applyStatus(&p.last, status)
	if now.Sub(p.imagesAt) >= imagesEvery {
		images, err := call(ctx, func(ctx context.Context) ([]*runtimeapi.Image, error) {
			return p.runtime.ListImages(ctx, nil)
		})
		if err != nil {
			// The image service can be another process; without it the runtime still runs pods.
			p.last.Message = err.Error()
			return p.last
		}
		p.last.Images, p.imagesAt = largest(images, p.maxImages), now
	}
	return p.last
}

func (p *prober) readFacts(ctx context.Context) error {
	version, err := call(ctx, p.runtime.Version)
	if err != nil {
		return err
	}
	p.last.Name, p.last.Version, p.last.APIVersion = version.GetRuntimeName(), version.GetRuntimeVersion(),
		version.GetRuntimeApiVersion()
	config, err := call(ctx, p.runtime.RuntimeConfig)
	switch {
	case err == nil:
		p.last.CgroupDriver = cgroupDriver(config)
	case cri.IsUnimplemented(err): // containerd before 2.0
		p.last.CgroupDriver = ""
	default:
		return err
	}
	return nil
}

func call[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return f(ctx)
}

func cgroupDriver(config *runtimeapi.RuntimeConfigResponse) string {
	if config.GetLinux() == nil {
		return ""
	}
	switch config.GetLinux().GetCgroupDriver() {
	case runtimeapi.CgroupDriver_SYSTEMD:
		return "systemd"
	case runtimeapi.CgroupDriver_CGROUPFS:
		return "cgroupfs"
	default:
		return ""
	}
}

// applyStatus takes over conditions, handlers and features.
func applyStatus(runtime *topic.Runtime, status *runtimeapi.StatusResponse) {
	runtime.RuntimeReady = conditionOf(status, runtimeapi.RuntimeReady)
	runtime.NetworkReady = conditionOf(status, runtimeapi.NetworkReady)
	runtime.Handlers = nil
	for _, handler := range status.GetRuntimeHandlers() {
		result := corev1.NodeRuntimeHandler{Name: handler.GetName()}
		if features := handler.GetFeatures(); features != nil {
			result.Features = &corev1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &features.RecursiveReadOnlyMounts, UserNamespaces: &features.UserNamespaces,
			}
		}
		runtime.Handlers = append(runtime.Handlers, result)
	}
	slices.SortFunc(runtime.Handlers, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	runtime.Features = corev1.NodeFeatures{}
	if features := status.GetFeatures(); features != nil {
		runtime.Features.SupplementalGroupsPolicy = &features.SupplementalGroupsPolicy
	}
}

func conditionOf(status *runtimeapi.StatusResponse, kind string) topic.RuntimeCondition {
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return topic.RuntimeCondition{Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage()}
		}
	}
	return topic.RuntimeCondition{Reason: "Missing", Message: "the runtime doesn't report its condition " + kind}
}

// largest are the largest images, at most most of them (all where it is negative), largest first, as the
// node's status lists them.
func largest(images []*runtimeapi.Image, most int) []corev1.ContainerImage {
	var result []corev1.ContainerImage
	for _, image := range images {
		names := slices.Concat(image.GetRepoDigests(), image.GetRepoTags())
		if len(names) == 0 {
			names = []string{image.GetId()}
		}
		size := int64(min(image.GetSize(), 1<<62))
		result = append(result, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: size})
	}
	slices.SortFunc(result, func(a, b corev1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), cmp.Compare(a.Names[0], b.Names[0]))
	})
	if most >= 0 && len(result) > most {
		result = result[:most]
	}
	return result
}

// watchNode probes the runtime until ctx ends, at once when s.probeNow says so.
func (s *Service) watchNode(ctx context.Context) {
	p := &prober{runtime: s.runtime, maxImages: s.options.MaxImages}
	for ctx.Err() == nil {
		reading := p.probe(ctx, time.Now())
		if !s.loop.Do(ctx, func() { s.onNode(reading) }) {
			return
		}
		pause := statusEvery
		if !reading.Reachable {
			pause = awayEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.probeNow:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
