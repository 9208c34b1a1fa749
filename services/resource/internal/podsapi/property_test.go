package podsapi

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// model is what a client knows that has watched: the pods by their UIDs.
type model struct {
	watcher *watcher
	pods    map[string][]byte
}

// watch begins to watch.
func watch(t *testing.T, b *book, ws *watchers) *model {
	t.Helper()
	w, err := ws.add(b.list())
	if err != nil {
		t.Fatal(err)
	}
	m := &model{w, map[string][]byte{}}
	for _, pod := range w.initial {
		m.pods[string(decode(t, pod).UID)] = pod
	}
	return m
}

// read takes in all events, and holds that each is possible.
func (m *model) read(t *testing.T) {
	t.Helper()
	for len(m.watcher.events) > 0 {
		e, err := m.watcher.take(<-m.watcher.events, true)
		if err != nil {
			t.Fatal(err)
		}
		uid := string(decode(t, e.pod).UID)
		before, known := m.pods[uid]
		if !slices.Contains(kinds, e.kind) || known == (e.kind == podsv1alpha1.EventType_ADDED) {
			t.Fatalf("%v of the pod %s, which was known: %t", e.kind, uid, known)
		}
		if bytes.Equal(before, e.pod) {
			t.Fatalf("%v of the pod %s changes nothing", e.kind, uid)
		}
		m.pods[uid] = e.pod
		if e.kind == podsv1alpha1.EventType_DELETED {
			delete(m.pods, uid)
		}
	}
}

// compare holds that the client knows what ListPods has.
func (m *model) compare(t *testing.T, b *book) {
	t.Helper()
	var pods [][]byte
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		pods = append(pods, m.pods[uid])
	}
	if !slices.EqualFunc(pods, b.list(), bytes.Equal) {
		t.Fatalf("a watcher knows %d pods, and ListPods has %d, or they differ", len(pods), len(b.list()))
	}
}

// TestWatchersKnowWhatIsListed makes random changes with watchers that come and go. What each knows from events is what
// ListPods has, and each event is possible.
func TestWatchersKnowWhatIsListed(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			b, ws := newBook(), &watchers{all: map[*watcher]bool{}}
			var models []*model
			for range 120 {
				uid := fmt.Sprintf("u%d", r.IntN(4))
				var e *event
				var err error
				switch r.IntN(10) {
				case 0, 1, 2:
					e, err = b.podChanged(update(uid, fmt.Sprint(r.IntN(20))))
				case 3:
					e, err = b.podChanged(gone(uid))
				case 4, 5, 6:
					e, err = b.statusChanged(merged(uid, phases[r.IntN(len(phases))], fmt.Sprint(r.IntN(20))))
				case 7:
					e, err = b.statusChanged(statusGone(uid))
				case 8:
					models = append(models, watch(t, b, ws))
				case 9:
					if len(models) > 0 {
						ws.remove(models[0].watcher)
						models = models[1:]
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if e != nil && ws.tell(e) > 0 {
					t.Fatal("a watcher was dropped")
				}
				for _, m := range models {
					if r.IntN(3) == 0 { // else it reads later
						m.read(t)
						m.compare(t, b)
					}
				}
			}
			for _, m := range models {
				m.read(t)
				m.compare(t, b)
			}
		})
	}
}

var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded}

// TestTheOrderOfTopicsDoesNotMatter makes the changes of both topics, each topic in its order, mixed in two ways. No
// message is removed, and in the end the same is shown.
func TestTheOrderOfTopicsDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var podChanges, statusChanges []func(*book) (*event, error)
		for range 15 {
			uid := fmt.Sprintf("u%d", r.IntN(3))
			pod := update(uid, fmt.Sprint(r.IntN(20)))
			status := merged(uid, phases[r.IntN(len(phases))], fmt.Sprint(r.IntN(20)))
			podChanges = append(podChanges, func(b *book) (*event, error) { return b.podChanged(pod) })
			statusChanges = append(statusChanges, func(b *book) (*event, error) { return b.statusChanged(status) })
		}
		var lists [2][][]byte
		for i := range lists {
			b := newBook()
			pods, statuses := podChanges, statusChanges
			for len(pods)+len(statuses) > 0 {
				from := &pods
				if len(pods) == 0 || len(statuses) > 0 && r.IntN(2) == 0 {
					from = &statuses
				}
				if _, err := (*from)[0](b); err != nil {
					t.Fatal(err)
				}
				*from = (*from)[1:]
			}
			lists[i] = b.list()
		}
		if !slices.EqualFunc(lists[0], lists[1], bytes.Equal) {
			t.Fatalf("seed %d: what is shown depends on the order", seed)
		}
	}
}
