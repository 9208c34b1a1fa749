package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"kubelot.dev/kube"
)

var errDown = errors.New("dial tcp: connection refused")

// server is the Nodes and leases part of an API server, with one Node and one lease.
type server struct {
	mu         sync.Mutex
	node       *corev1.Node
	lease      *coordinationv1.Lease
	csiNode    *storagev1.CSINode
	watchers   []chan kube.Change[corev1.Node]
	unlisted   []chan kube.Change[corev1.Node] // watches that began while the server was down
	version    int
	down       bool
	misled     bool // a load balancer answers reports with "not found"
	writes     int
	renewals   int
	reconnects int
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if !down {
		for _, w := range s.unlisted {
			s.list(w)
		}
		s.unlisted = nil
	}
}

// list begins a watch.
func (s *server) list(w chan kube.Change[corev1.Node]) {
	if s.node != nil {
		w <- kube.Change[corev1.Node]{Object: s.node.DeepCopy()}
	}
	w <- kube.Change[corev1.Node]{Synced: true}
	s.watchers = append(s.watchers, w)
}

func (s *server) get() (node *corev1.Node, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.DeepCopy(), s.writes
}

// renewed is the lease, how often it was written, and how often the connections were reopened.
func (s *server) renewed() (lease *coordinationv1.Lease, renewals, reconnects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy(), s.renewals, s.reconnects
}

// changed gives the Node a new version and tells the watchers.
func (s *server) changed() {
	s.version++
	s.node.ResourceVersion = strconv.Itoa(s.version)
	for _, w := range s.watchers {
		w <- kube.Change[corev1.Node]{Object: s.node.DeepCopy()}
	}
}

// serve answers a request with a copy; while the server is down every request fails.
func serve[T interface{ DeepCopy() T }](s *server, handle func() (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	if s.down {
		return none, errDown
	}
	answer, err := handle()
	if err != nil {
		return none, err
	}
	return answer.DeepCopy(), nil
}

func (s *server) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return serve(s, func() (*corev1.Node, error) { return s.node, s.hasNode(name) })
}

// hasNode is an error unless the Node is there.
func (s *server) hasNode(name string) error {
	if s.node == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return nil
}

func (s *server) CreateNode(_ context.Context, node *corev1.Node) (*corev1.Node, error) {
	return serve(s, func() (*corev1.Node, error) {
		if s.node != nil {
			return nil, apierrors.NewAlreadyExists(corev1.Resource("nodes"), node.Name)
		}
		s.writes++
		s.node = node.DeepCopy()
		s.node.UID = "uid-1"
		s.changed()
		return s.node, nil
	})
}

func (s *server) PatchNodeStatus(_ context.Context, name string, patch []byte) (*corev1.Node, error) {
	return serve(s, func() (*corev1.Node, error) {
		if err := s.hasNode(name); err != nil || s.misled {
			return nil, cmp.Or(err, error(apierrors.NewNotFound(corev1.Resource("nodes"), name)))
		}
		before, err := json.Marshal(s.node)
		if err != nil {
			return nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
		if err != nil {
			return nil, err
		}
		s.node = &corev1.Node{}
		if err := json.Unmarshal(after, s.node); err != nil {
			return nil, err
		}
		s.writes++
		s.changed()
		return s.node, nil
	})
}

func (s *server) GetCSINode(_ context.Context, name string) (*storagev1.CSINode, error) {
	return serve(s, func() (*storagev1.CSINode, error) {
		if s.csiNode == nil {
			return nil, apierrors.NewNotFound(storagev1.Resource("csinodes"), name)
		}
		return s.csiNode, nil
	})
}

func (s *server) CreateCSINode(ctx context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	return s.UpdateCSINode(ctx, n)
}

func (s *server) UpdateCSINode(_ context.Context, n *storagev1.CSINode) (*storagev1.CSINode, error) {
	return serve(s, func() (*storagev1.CSINode, error) {
		s.csiNode = n.DeepCopy()
		return s.csiNode, nil
	})
}

func (s *server) DeleteCSINode(context.Context, string, types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.csiNode = nil
	return nil
}

// csiDrivers are the names in the CSINode; nil where there is none.
func (s *server) csiDrivers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.csiNode == nil {
		return nil
	}
	names := []string{}
	for _, d := range s.csiNode.Spec.Drivers {
		names = append(names, d.Name)
	}
	return names
}

// WatchNode has room for all the changes of a test, so that the server never waits.
func (s *server) WatchNode(ctx context.Context, _ string) <-chan kube.Change[corev1.Node] {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, out := make(chan kube.Change[corev1.Node], 1000), make(chan kube.Change[corev1.Node])
	if s.down {
		s.unlisted = append(s.unlisted, in)
	} else {
		s.list(in)
	}
	go func() {
		defer close(out)
		for {
			select {
			case c := <-in:
				select {
				case out <- c:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (s *server) GetLease(_ context.Context, name string) (*coordinationv1.Lease, error) {
	return serve(s, func() (*coordinationv1.Lease, error) { return s.lease, s.hasLease(name) })
}

// hasLease is an error unless the lease is there.
func (s *server) hasLease(name string) error {
	if s.lease == nil {
		return apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return nil
}

func (s *server) CreateLease(_ context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return serve(s, func() (*coordinationv1.Lease, error) { return s.renew(lease), nil })
}

func (s *server) UpdateLease(_ context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return serve(s, func() (*coordinationv1.Lease, error) {
		if err := s.hasLease(lease.Name); err != nil {
			return nil, err
		}
		if s.lease.ResourceVersion != lease.ResourceVersion {
			return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it was changed"))
		}
		return s.renew(lease), nil
	})
}

// renew stores the lease under a new version.
func (s *server) renew(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.lease = lease.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	s.renewals++
	return s.lease
}

func (s *server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconnects++
}
