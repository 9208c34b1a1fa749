// Package objects reads the API objects that pods refer to, all from watches: ConfigMaps and Secrets while a pod holds
// them, Services and RuntimeClasses always.
package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"kubelot.dev/kube"
)

var (
	// errStandalone is the answer of a node without an API server.
	errStandalone = errors.New("this node has no API server (standalone mode)")
	errNoAnswer   = errors.New("the API server gives no answer")
)

// Objects answers look-ups. A nil client makes every look-up fail: the node is standalone. Its methods may be
// called from any goroutine.
type Objects struct {
	client     *kube.Client
	configMaps *kube.ObjectCache[corev1.ConfigMap]
	secrets    *kube.ObjectCache[corev1.Secret]

	mu       sync.Mutex
	services map[string]map[string]*corev1.Service // by namespace and name
	classes  map[string]*nodev1.RuntimeClass
	synced   chan struct{} // closed when the services are known
	known    chan struct{} // closed when the classes are known
}

// New makes Objects; Run keeps the watches.
func New(client *kube.Client, strategy kube.Strategy) *Objects {
	o := &Objects{
		client: client, services: map[string]map[string]*corev1.Service{}, classes: map[string]*nodev1.RuntimeClass{},
		synced: make(chan struct{}), known: make(chan struct{}),
	}
	if client != nil {
		o.configMaps, o.secrets = client.ConfigMaps(strategy), client.Secrets(strategy)
	}
	return o
}

// Run keeps the watches until ctx ends.
func (o *Objects) Run(ctx context.Context) {
	if o.client == nil {
		return
	}
	var caches sync.WaitGroup
	defer caches.Wait()
	caches.Go(func() { _ = o.configMaps.Run(ctx) })
	caches.Go(func() { _ = o.secrets.Run(ctx) })
	services, classes := o.client.WatchServices(ctx), o.client.WatchRuntimeClasses(ctx)
	for services != nil || classes != nil {
		select {
		case change, ok := <-services:
			if !ok {
				services = nil
				continue
			}
			o.service(change)
		case change, ok := <-classes:
			if !ok {
				classes = nil
				continue
			}
			o.class(change)
		case <-o.configMaps.Changes(): // who waits for one tries again by itself
		case <-o.secrets.Changes():
		}
	}
}

func (o *Objects) service(change kube.Change[corev1.Service]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case change.Synced:
		closeOnce(o.synced)
	case change.Deleted:
		delete(o.services[change.Object.Namespace], change.Object.Name)
	default:
		named := o.services[change.Object.Namespace]
		if named == nil {
			named = map[string]*corev1.Service{}
			o.services[change.Object.Namespace] = named
		}
		named[change.Object.Name] = change.Object
	}
}

func (o *Objects) class(change kube.Change[nodev1.RuntimeClass]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case change.Synced:
		closeOnce(o.known)
	case change.Deleted:
		delete(o.classes, change.Object.Name)
	default:
		o.classes[change.Object.Name] = change.Object
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// ConfigMap gives a ConfigMap: one that a pod holds from memory, once the API server has been asked.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if o.client == nil {
		return nil, errStandalone
	}
	ctx, cancel := context.WithTimeoutCause(ctx, firstAnswer, errNoAnswer)
	defer cancel()
	return o.configMaps.Get(ctx, kube.ObjectKey{Namespace: namespace, Name: name})
}

// Secret gives a Secret, as ConfigMap does.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if o.client == nil {
		return nil, errStandalone
	}
	ctx, cancel := context.WithTimeoutCause(ctx, firstAnswer, errNoAnswer)
	defer cancel()
	return o.secrets.Get(ctx, kube.ObjectKey{Namespace: namespace, Name: name})
}

// Services lists the Services of a namespace. It fails until the API server has been asked once.
func (o *Objects) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	if o.client == nil {
		return nil, nil
	}
	if err := wait(ctx, o.synced, "services have not yet been read at least once, cannot construct envvars"); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*corev1.Service
	for _, s := range o.services[namespace] {
		list = append(list, s)
	}
	return list, nil
}

// Handler is the runtime handler of a RuntimeClass.
func (o *Objects) Handler(ctx context.Context, class string) (string, error) {
	if o.client == nil {
		return "", fmt.Errorf("RuntimeClass %q: %w", class, errStandalone)
	}
	if err := wait(ctx, o.known, "RuntimeClasses have not been read from the API server yet"); err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.classes[class]
	if c == nil {
		return "", fmt.Errorf("RuntimeClass %q not found", class)
	}
	return c.Handler, nil
}

// KnownHandler is the runtime handler of a RuntimeClass as far as it is known by now; it waits for nothing.
func (o *Objects) KnownHandler(class string) (handler string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.classes[class]
	if c == nil {
		return "", false
	}
	return c.Handler, true
}

// wait gives a watch that has just begun a moment to deliver.
func wait(ctx context.Context, ready <-chan struct{}, message string) error {
	select {
	case <-ready:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return errors.New(message)
	}
}

const (
	// firstList is how long a look-up waits for a watch's first list.
	firstList = 5 * time.Second
	// firstAnswer is how long a look-up waits for an object that the API server hasn't sent yet.
	firstAnswer = 10 * time.Second
)
