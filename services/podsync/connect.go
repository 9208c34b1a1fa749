package podsync

import (
	"context"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/kube"
	"kubelot.dev/services/podsync/internal/source"
)

// connectionsTo is under what name the supervisor keeps the connections to the runtime.
const connectionsTo = "cri"

// Clients are how the daemon reaches what is outside of it, apart from the bus.
type Clients struct {
	// Runtime is the client of the container runtime.
	Runtime *cri.Client
	// Kube is the client of the API server; nil in standalone mode.
	Kube *kube.Client
	// Sources are where pods come from; nil for those of the configuration.
	Sources []source.Source
}

// connect makes the clients, which connect with their first call. If there are no credentials for the API server yet,
// static pods run nevertheless.
func connect(env daemon.Env) (Clients, error) {
	var clients Clients
	var err error
	cfg, k := env.Config, &env.Config.Kubelet
	if !cfg.Standalone() {
		options := kube.Options{
			Daemon: "podsync", Version: daemon.Version(), ContentType: k.ContentType, Certificate: cfg.ClientCertificate,
			Log: env.Log,
		}.WithLimits(k.KubeAPIQPS, k.KubeAPIBurst)
		if clients.Kube, err = kube.Open(cfg.Kubeconfig, options); err != nil {
			return clients, err
		}
	}
	clients.Runtime, err = cri.Dial(cfg.RuntimeEndpoint, cri.Options{
		ImageEndpoint: cfg.ImageEndpoint, Timeout: k.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
		Dialer: env.Connections.Dialer(connectionsTo),
	})
	return clients, err
}

// newSources makes the pod sources of the configuration.
func (p *parts) newSources() []source.Source {
	var list []source.Source
	cfg, k := p.Config, &p.Config.Kubelet
	if p.clients.Kube != nil {
		list = append(list, source.NewAPI(p.reflectPods))
		p.node.AskBy(p.clients.Kube.GetNode) // this source may know of a label before node.object has it
	}
	if k.StaticPodPath != "" {
		list = append(list, source.NewFile(source.FileConfig{
			Path: k.StaticPodPath, Every: k.FileCheckFrequency.Duration, NodeName: cfg.NodeName,
			LastGood: filepath.Join(cfg.RunDir, "podsync", "manifests"), Problem: p.manifestProblem,
		}))
	}
	if k.StaticPodURL != "" {
		header := http.Header{}
		for name, values := range k.StaticPodURLHeader {
			header[http.CanonicalHeaderKey(name)] = values
		}
		list = append(list, source.NewURL(source.URLConfig{
			URL: k.StaticPodURL, Header: header, Every: k.HTTPCheckFrequency.Duration, NodeName: cfg.NodeName,
			Problem: p.manifestProblem,
		}))
	}
	return list
}

// reflectPods turns the watch of this node's pods into whole sets.
func (p *parts) reflectPods(ctx context.Context, handle func([]*corev1.Pod)) error {
	source.Gather(p.clients.Kube.WatchPods(ctx, p.Config.NodeName), handle)
	return ctx.Err()
}

// manifestProblem reports a manifest that can't be used where the operator sees it: in the log, and in an Event on the
// node.
func (p *parts) manifestProblem(problem source.Problem) {
	log := p.Log.With("source", string(problem.Source), "where", problem.Where)
	switch {
	case problem.Solved:
		log.Info("the manifest is usable again")
		p.report.NodeEvent(p.Config.NodeName, corev1.EventTypeNormal, topic.ManifestUsable, problem.Where+
			": it is usable again, or gone")
		return
	case problem.Warning:
		log.Warn("the manifest has problems, using it nevertheless", "error", problem.Message)
	default:
		log.Error("can't use a manifest", "error", problem.Message)
	}
	p.report.NodeEvent(p.Config.NodeName, corev1.EventTypeWarning, topic.ManifestInvalid,
		problem.Where+": "+problem.Message)
}

func sourceNames(sources []source.Source) []topic.Source {
	var names []topic.Source
	for _, src := range sources {
		names = append(names, src.Name())
	}
	return names
}
