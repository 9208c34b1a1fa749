package kube

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func TestMain(m *testing.M) {
	// The global handlers sleep until the time of the last error, which a bubble of synctest sees in the far future.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

var (
	errDown    = errors.New("dial tcp: connection refused")
	errRefused = apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("not yours"))
)

// collection is one collection of ConfigMaps at an API server.
type collection struct {
	mu       sync.Mutex
	objects  map[string]*corev1.ConfigMap
	version  int
	watchers []*watch.RaceFreeFakeWatcher
	err      error
	// refusesEach is that of so many failures one is an answer, a refusal.
	refusesEach int
	// stale hides the objects from lists, as a server's cache that lags behind does.
	stale    bool
	requests int
}

func newCollection() *collection { return &collection{objects: map[string]*corev1.ConfigMap{}} }

func (c *collection) set(name, value string, edit ...func(*corev1.ConfigMap)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(c.version),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Data: map[string]string{"k": value},
	}
	for _, e := range edit {
		e(o)
	}
	existed := c.objects[name] != nil
	c.objects[name] = o
	for _, w := range c.watchers {
		if existed {
			w.Modify(o.DeepCopy())
		} else {
			w.Add(o.DeepCopy())
		}
	}
}

func (c *collection) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[name]
	delete(c.objects, name)
	for _, w := range c.watchers {
		w.Delete(o.DeepCopy())
	}
}

// fail makes every request fail from now on and ends the open watches.
func (c *collection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, w := range c.watchers {
		w.Stop()
	}
	c.watchers = nil
}

func (c *collection) requestLocked() error {
	c.requests++
	if c.err != nil && c.refusesEach > 0 && c.requests%c.refusesEach == 0 {
		return errRefused
	}
	return c.err
}

// watched is how many watches are open.
func (c *collection) watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watchers)
}

func (c *collection) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.requests
	c.requests = 0
	return n
}

// askedIn is how many requests come in that time, which begins after another one.
func (c *collection) askedIn(d, after time.Duration) int {
	time.Sleep(after)
	synctest.Wait()
	c.asked()
	time.Sleep(d)
	synctest.Wait()
	return c.asked()
}

// source is the collection, or the one object of that name.
func (c *collection) source(name string) source {
	return source{
		list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if err := c.requestLocked(); err != nil {
				return nil, err
			}
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.version)}}
			for _, o := range c.objects {
				if !c.stale && (name == "" || o.Name == name) {
					list.Items = append(list.Items, *o.DeepCopy())
				}
			}
			return list, nil
		},
		watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if err := c.requestLocked(); err != nil {
				return nil, err
			}
			w := watch.NewRaceFreeFake()
			c.watchers = append(c.watchers, w)
			return w, nil
		},
	}
}

func (c *collection) get(_ context.Context, k ObjectKey) (*corev1.ConfigMap, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.requestLocked(); err != nil {
		return nil, err
	}
	if o := c.objects[k.Name]; o != nil {
		return o.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), k.Name)
}

// clientOf is a client of that server, until the test's end.
func clientOf(t *testing.T, url string) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	replace(t, file, userOf(url, "{}"))
	c, err := NewClient(file, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testClient() *Client {
	return &Client{outage: newOutage(""), log: slog.New(slog.DiscardHandler)}
}
