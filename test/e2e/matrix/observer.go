package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// leaseTime is how long a lease counts.
	leaseTime = 40 * time.Second
	// fewEvents are about the node: each daemon that starts may say so.
	fewEvents = 12
)

// Observed is what an Observer watches: a node, its lease, and the Events on the node and on pods that only live.
type Observed struct {
	Client kubernetes.Interface
	Node   string
	// Namespace is where the pods are. The namespace default is observed too: it has static pods, and the node's Events.
	Namespace string
	// Living is how many pods run all the time.
	Living int
	// Passing are the beginnings of the names of pods that come or go. Their Events don't count.
	Passing []string
}

// Observer watches for the time of a cell.
type Observer struct {
	of     Observed
	before events
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	turned []string
	oldest time.Duration // age of the lease
}

// Observe begins to watch, at the latest until the end of ctx.
func Observe(ctx context.Context, of Observed) (*Observer, error) {
	before, err := of.events(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	o := &Observer{of: of, before: before, stop: stop}
	o.done.Go(func() {
		for ctx.Err() == nil {
			o.look(ctx)
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return o, nil
}

// look looks once. While the API server is away nothing can be seen.
func (o *Observer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	node, err := o.of.Client.CoreV1().Nodes().Get(ctx, o.of.Node, metav1.GetOptions{})
	if err != nil {
		return
	}
	lease, err := o.of.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, o.of.Node, metav1.GetOptions{})
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if lease.Spec.RenewTime != nil {
		o.oldest = max(o.oldest, time.Since(lease.Spec.RenewTime.Time))
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			o.turned = append(o.turned, fmt.Sprintf("%s: %s", c.Status, c.Message))
		}
	}
}

// Check ends the watch. Its error is what was seen that must not be while something happens to a part; both are named
// as in Allows.
func (o *Observer) Check(ctx context.Context, part, happens string, t Times) error {
	o.stop()
	o.done.Wait()
	now, err := o.of.events(ctx)
	if err != nil {
		return err
	}
	var faults []error
	if nodeTurns(part, action(happens), t) == "" && len(o.turned) > 0 {
		faults = append(faults, fmt.Errorf("the node was not Ready: %s", o.turned[0]))
	}
	if renewed(part, action(happens)) && o.oldest > leaseTime {
		faults = append(faults, fmt.Errorf("the lease was not renewed for %s", o.oldest))
	}
	if n, what := now.more(o.before); n > fewEvents+o.of.Living {
		faults = append(faults, fmt.Errorf("there are %d more Events on the node and on pods that only live: %q", n, what))
	}
	return errors.Join(faults...)
}

// events are by object, reason and reporter how often Events were seen.
type events map[types.UID]event

type event struct {
	what  string
	count int
}

// more are the Events since before. What the API server has forgotten meanwhile, as it does after an hour, doesn't
// count.
func (e events) more(before events) (number int, what []string) {
	for uid, now := range e {
		if n := now.count - before[uid].count; n > 0 {
			number += n
			what = append(what, fmt.Sprintf("%dx %s", n, now.what))
		}
	}
	slices.Sort(what)
	return number, what
}

// events are the node agent's Events on the node and on pods that neither come nor go. Those of the controllers don't
// count: they say of each pod that its node isn't ready.
func (of Observed) events(ctx context.Context) (events, error) {
	seen := events{}
	for _, namespace := range []string{of.Namespace, metav1.NamespaceDefault} {
		list, err := of.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the Events in namespace %s: %w", namespace, err)
		}
		for _, e := range list.Items {
			name := e.InvolvedObject.Name
			passing := slices.ContainsFunc(of.Passing, func(p string) bool { return strings.HasPrefix(name, p) })
			if !passing && e.Source.Component == "kubelet" {
				seen[e.UID] = event{name + " " + e.Reason + ": " + e.Message, max(1, int(e.Count))}
			}
		}
	}
	return seen, nil
}
