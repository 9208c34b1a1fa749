package lease

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/kube"
	"kubelot.dev/services/lease/internal/clientcert"
	"kubelot.dev/services/lease/internal/csinode"
)

// Run is the lease daemon's work: the Node's object and status in one loop, its lease in another.
func Run(ctx context.Context, env daemon.Env) error {
	if env.Config.Standalone() {
		return New(env, nil, realHost()).Run(ctx)
	}
	client, heart, err := clients(env)
	if err != nil {
		return err
	}
	defer client.Close()
	defer heart.Close()
	health := daemon.JoinHealth(env.Health)
	env.Health = health.Part()
	identity, err := clientcert.New(env.Config, identityPorts(env, health.Part()))
	if err != nil {
		return err
	}
	renewed, err := renewals(env.Metrics)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &renewer{
		api: heart, node: env.Config.NodeName, log: env.Log, health: health.Part(), renewed: renewed,
		duration: time.Duration(env.Config.Kubelet.NodeLeaseDurationSeconds) * time.Second,
	}
	wg.Go(func() { identity.Run(ctx) })
	wg.Go(func() {
		if heart.Await(ctx) == nil {
			r.run(ctx)
		}
	})
	return New(env, patient{client, kube.StorageOf(client)}, realHost()).Run(ctx)
}

// clients are one client for the Node and one for its lease: what holds up one doesn't hold up the other.
func clients(env daemon.Env) (node, heart *kube.Client, err error) {
	options := clientOptions(env, env.Config.ClientCertificate)
	if node, err = kube.Open(env.Config.Kubeconfig, options); err != nil {
		return nil, nil, err
	}
	options = options.WithLimits(nil, 0)
	if heart, err = kube.Open(env.Config.Kubeconfig, options); err != nil {
		node.Close()
		return nil, nil, err
	}
	return node, heart, nil
}

// clientOptions are those of a client that has the certificate, or with none the kubeconfig's user.
func clientOptions(env daemon.Env, certificate string) kube.Options {
	k := env.Config.Kubelet
	return kube.Options{
		Daemon: "lease", Version: daemon.Version(), ContentType: k.ContentType, Certificate: certificate, Log: env.Log,
	}.WithLimits(k.KubeAPIQPS, k.KubeAPIBurst)
}

// patient is a client whose first call waits until there are credentials: that is no failure.
type patient struct {
	*kube.Client
	kube.Storage
}

func (p patient) CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if err := p.Await(ctx); err != nil {
		return nil, err
	}
	return p.Client.CreateNode(ctx, node)
}

// nodes is what the service needs of the API server.
type nodes interface {
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error)
	csinode.API
	PatchNodeStatus(ctx context.Context, name string, patch []byte) (*corev1.Node, error)
	WatchNode(ctx context.Context, name string) <-chan kube.Change[corev1.Node]
}

// Service keeps the Node object. Its Run is the goroutine that owns the state.
type Service struct {
	env   daemon.Env
	api   nodes // nil in standalone mode
	host  host
	facts Facts
	// words are the daemons' last ones, with times by their own clock.
	words map[string]topic.DaemonHealth
	// node is the Node as the API server has it; nil while unknown. watched is the last one that the watch has delivered.
	node, watched *corev1.Node
	// local is the Node as this daemon would register it, while the API server has none; told once it is on the bus.
	local *corev1.Node
	told  bool
	// unread is how many topics the bus hasn't told of since the start. What an earlier process has reported of the Node
	// is the better report until then: with half of what the runtime and the daemons say, the Node would not be Ready.
	unread int
	// absent is true once the API server has said that it has no such Node. bus is what the bus has of it.
	absent bool
	bus    retained
	// registered is true once this process has seen its Node: one that is deleted after that isn't made again.
	registered bool
	bootTold   bool
	// looked is true once the addresses have been looked up; the Node isn't registered before, even if there are none.
	looked  bool
	writes  writes
	csiNode csiNode
	publish func(corev1.Node)
	metrics *metrics
	loop    *loop.Loop
}

// writes says when the next request to the API server may be made. One is under way at a time.
type writes struct {
	underway bool
	failures int       // in a row
	retry    time.Time // the earliest time of the next request after a failure
	// computed and reported are when the status was last compared and last written.
	computed, reported time.Time
	turns              turns
}

// answer is what the API server said to a write.
type answer struct {
	node    *corev1.Node
	created bool
	// report is true for a report of the status, which was made from the Node before; the watch may tell of
	// the report before its answer comes.
	report bool
	before *corev1.Node
	err    error
}

// New makes the service; a nil api means standalone mode. It starts nothing.
func New(env daemon.Env, api nodes, h host) *Service {
	health := daemon.JoinHealth(env.Health)
	env.Health = health.Part()
	s := &Service{
		csiNode: csiNode{health: health.Part()},
		env:     env, api: api, host: h, loop: loop.New(env.Bus),
		facts: Facts{
			Health:  map[string]topic.DaemonHealth{},
			CSI:     CSI{Drivers: map[string]topic.CSINodeInfo{}, Gone: map[string]bool{}},
			Plugins: map[string]bool{}, Exclusive: config.Exclusive(&env.Config.Kubelet),
		},
		words: map[string]topic.DaemonHealth{}, metrics: newMetrics(env.Config.NodeName, h.uptime),
	}
	if api != nil {
		s.facts.CSI.Missing = errNoCSINode
	}
	return s
}

// Run works until ctx ends and waits for the write under way.
func (s *Service) Run(ctx context.Context) error {
	defer s.loop.Wait()
	if err := s.metrics.register(s.env.Metrics); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := topic.NodeObject.Writer(s.env.Bus)
	s.publish = func(n corev1.Node) {
		if err := out.Set("", n); err != nil {
			s.env.Log.Error("can't publish the Node on the bus", "error", err)
		}
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-s.loop.Changes():
			change()
		case <-timer.C:
		}
		timer.Reset(s.evaluate(ctx, time.Now()))
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
		last := s.watched
		s.watched = c.Object
		if last != nil && restored(last, c.Object) {
			s.take(c.Object)
			return
		}
		s.adopt(c.Object)
	}
}

// restored reports whether the API server has gone back from one state of the Node to another, as where it was restored
// from a backup.
func restored(from, to *corev1.Node) bool { return from.UID == to.UID && kube.Older(to, from) }

func (s *Service) gone() {
	s.node, s.absent = nil, true
	s.env.Log.Warn("the Node was deleted at the API server; restart kubelot-lease to register it again",
		"node", s.env.Config.NodeName)
	s.env.Health.Set(topic.Degraded, "the Node was deleted at the API server")
}

// adopt takes the API server's Node unless a newer state of it is known.
func (s *Service) adopt(n *corev1.Node) {
	if s.node != nil && s.node.UID == n.UID && kube.Older(n, s.node) {
		return
	}
	s.take(n)
}

func (s *Service) take(n *corev1.Node) {
	if s.node != nil && s.node.Spec.Unschedulable != n.Spec.Unschedulable {
		s.tellReason(map[bool]string{true: "NodeNotSchedulable", false: "NodeSchedulable"}[n.Spec.Unschedulable])
	}
	if s.node == nil || !maps.Equal(s.node.Labels, n.Labels) {
		s.csiNode.changed = true // drivers may have waited for their labels
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
		s.event(corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s",
			s.node.Name, m.BootID))
	}
}

func (s *Service) event(kind, reason, message string) { recordNode(s.env, kind, reason, message) }

// tellReason records that the Node's status or spec has changed, in the kubelet's words.
func (s *Service) tellReason(reason string) {
	s.event(corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", s.env.Config.NodeName, reason))
}

// recordNode records an Event of the node.
func recordNode(env daemon.Env, kind, reason, message string) {
	env.Events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: env.Config.NodeName, UID: env.Config.NodeName},
		Type: kind, Reason: reason, Message: message, At: time.Now(),
	})
}
