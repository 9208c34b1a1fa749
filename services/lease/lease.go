package lease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/kube"
)

// Run is the lease daemon's work: the Node's object and status in one loop, its lease in another.
func Run(ctx context.Context, env daemon.Env) error {
	if refused := refusedLabels(env.Config.NodeLabels); len(refused) > 0 {
		env.Log.Warn("a node may not give itself these labels (NodeRestriction); they are left out of --node-labels", "labels", strings.Join(refused, ","))
	}
	if env.Config.Standalone() {
		return New(env, nil, realHost()).Run(ctx)
	}
	client, heart, err := clients(ctx, env)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer client.Close()
	defer heart.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &renewer{
		api: heart, node: env.Config.NodeName, log: env.Log,
		duration: time.Duration(env.Config.Kubelet.NodeLeaseDurationSeconds) * time.Second,
	}
	wg.Go(func() { r.run(ctx) })
	return New(env, client, realHost()).Run(ctx)
}

// clients are one client for the Node and one for its lease: whatever holds up the one doesn't hold up the other.
func clients(ctx context.Context, env daemon.Env) (node, heart *kube.Client, err error) {
	k := env.Config.Kubelet
	options := kube.Options{Daemon: "lease", ContentType: k.ContentType, Log: env.Log, Burst: int(k.KubeAPIBurst)}
	if k.KubeAPIQPS != nil {
		options.QPS = float32(*k.KubeAPIQPS)
	}
	if node, err = kube.WaitClient(ctx, env.Config.Kubeconfig, options); err != nil {
		return nil, nil, err
	}
	options.QPS = -1
	if heart, err = kube.WaitClient(ctx, env.Config.Kubeconfig, options); err != nil {
		node.Close()
		return nil, nil, err
	}
	return node, heart, nil
}

// nodes is what the service needs of the API server.
type nodes interface {
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error)
	PatchNodeStatus(ctx context.Context, name string, patch []byte) (*corev1.Node, error)
	WatchNode(ctx context.Context, name string) <-chan kube.Change[corev1.Node]
}

// Service keeps the Node object. Its Run is the goroutine that owns the state.
type Service struct {
	env   daemon.Env
	api   nodes // nil in standalone mode
	host  host
	facts Facts
	// node is the Node as the API server has it; nil while unknown.
	node *corev1.Node
	// local is the Node as this daemon would register it, while the API server has none; told once it is on the bus.
	local *corev1.Node
	told  bool
	// absent is true once the API server has said that it has no such Node. bus is what the bus has of it.
	absent bool
	bus    retained
	// registered is true once this process has seen its Node: one that is deleted after that isn't made again.
	registered bool
	bootTold   bool
	writing    bool
	failures   int
	retry      time.Time
	// computed and reported are when the status was last compared and last written.
	computed, reported time.Time
	answers            chan answer
	publish            func(corev1.Node)
	metrics            *metrics
	wg                 sync.WaitGroup
}

// answer is what the API server said to a write.
type answer struct {
	node    *corev1.Node
	created bool
	// report is true for a report of the status, which was made from the conditions before; the watch may tell of
	// the report before its answer comes.
	report bool
	before []corev1.NodeCondition
	err    error
}

// New makes the service; a nil api means standalone mode. It starts nothing.
func New(env daemon.Env, api nodes, h host) *Service {
	return &Service{
		env: env, api: api, host: h, answers: make(chan answer),
		facts: Facts{Health: map[string]topic.DaemonHealth{}}, metrics: newMetrics(env.Config.NodeName, h.uptime),
	}
}

// Run works until ctx ends and waits for the write under way.
func (s *Service) Run(ctx context.Context) error {
	defer s.wg.Wait()
	if err := s.metrics.register(s.env.Metrics); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := topic.NodeObject.Writer(s.env.Bus)
	s.publish = func(n corev1.Node) {
		if err := out.Set("", n); err != nil {
			s.env.Log.Error("the Node can't be put on the bus", "error", err)
		}
	}
	changes, err := s.follow(ctx)
	if err != nil {
		return err
	}
	var watched <-chan kube.Change[corev1.Node]
	if s.api != nil {
		watched = s.api.WatchNode(ctx, s.env.Config.NodeName)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.finish(watched)
			return nil
		case apply := <-changes:
			apply(s)
		case c, ok := <-watched:
			if !ok {
				watched = nil
				continue
			}
			s.seen(c)
		case a := <-s.answers:
			s.settle(a)
		case <-timer.C:
		}
		timer.Reset(s.evaluate(ctx, time.Now()))
	}
}

// finish waits for the write under way and for the watch, which end with the context.
func (s *Service) finish(watched <-chan kube.Change[corev1.Node]) {
	if s.writing {
		<-s.answers
	}
	if watched != nil {
		for range watched {
			continue
		}
	}
}

// seen takes the Node from the watch.
func (s *Service) seen(c kube.Change[corev1.Node]) {
	switch {
	case c.Synced:
		s.absent = s.node == nil
	case c.Deleted:
		if s.node != nil && s.node.UID == c.Object.UID {
			s.gone()
		}
	default:
		s.adopt(c.Object)
	}
}

func (s *Service) gone() {
	s.node, s.absent = nil, true
	s.env.Log.Warn("the Node was deleted at the API server; restart kubelot-lease to register it again", "node", s.env.Config.NodeName)
	s.env.Health.Set(topic.Degraded, "the Node was deleted at the API server")
}

// adopt takes the API server's Node unless a newer state of it is known.
func (s *Service) adopt(n *corev1.Node) {
	if s.node != nil && s.node.UID == n.UID && kube.Older(n, s.node) {
		return
	}
	s.node = n
	s.metrics.seen(n)
	s.registered, s.local, s.told, s.absent = true, nil, false, false
	s.publish(*n)
}

// rebooted records that the machine has been restarted since the Node was last reported.
func (s *Service) rebooted() {
	m := s.facts.Machine
	if s.bootTold || m == nil || s.node == nil {
		return
	}
	s.bootTold = true
	if old := s.node.Status.NodeInfo.BootID; old != "" && m.BootID != "" && old != m.BootID {
		s.event(corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", s.node.Name, m.BootID))
	}
}

func (s *Service) event(kind, reason, message string) {
	s.env.Events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: s.env.Config.NodeName, UID: s.env.Config.NodeName},
		Type: kind, Reason: reason, Message: message, At: time.Now(),
	})
}
