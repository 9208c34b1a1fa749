package selinux

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Volume is a volume that a pod is to have, of a kind that can be mounted with a label. Nobody asks about others: what
// the kubelet counts of them would never be an error.
type Volume struct {
	// ID names the volume: what pods have by the same ID has one label. Name is what people call it.
	ID, Name string
	// Plugin is the name of its kind, with the driver's of one that has a driver.
	Plugin string
	// Modes are the access modes of a persistent volume; a volume of the pod's own spec has none.
	Modes []corev1.PersistentVolumeAccessMode
}

// place is one pod's volume.
type place struct {
	pod    types.UID
	volume string
}

// wish is what a pod wants; label is empty where the volume is mounted without one.
type wish struct{ id, label string }

// shared is a volume that pods want, with the label that the first of them has asked for.
type shared struct {
	label string
	pods  int
}

// Book knows which pods want which volumes with which labels, and refuses pods that don't go together. A nil Book, as
// that of a node without SELinux, has no labels. Its methods may be called from several goroutines.
type Book struct {
	labels Labels
	// everyMode is true where volumes of all access modes are mounted with labels (feature gate SELinuxMount).
	everyMode bool
	counts    counts

	mu     sync.Mutex
	wishes map[place]wish
	shared map[string]shared
}

// NewBook knows of no pod. Labels may be nil. Without everyMode only volumes for one pod are mounted with labels.
func NewBook(labels Labels, everyMode bool) *Book {
	b := &Book{labels: labels, everyMode: everyMode, counts: newCounts()}
	b.Clear()
	return b
}

// Metrics are the kubelet's about labels.
func (b *Book) Metrics() []prometheus.Collector { return b.counts.all() }

// Clear forgets all pods.
func (b *Book) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wishes, b.shared = map[place]wish{}, map[string]shared{}
}

// On reports whether the node has labels.
func (b *Book) On() bool { return b != nil && b.labels != nil }

// Label is the label to mount the volume with, which the pod has by that name; empty for none. It notes that the pod
// wants the volume, until Leave. An error is in the kubelet's words.
func (b *Book) Label(pod *corev1.Pod, name string, v Volume) (string, error) {
	if !b.On() {
		return "", nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := place{pod.UID, name}
	if known, ok := b.wishes[at]; ok && known.id == v.ID {
		return known.label, nil
	}
	b.leave(at)
	label, err := b.ofPod(pod, name, v)
	if err != nil && b.mounts(v) {
		return "", err
	}
	there, used := b.shared[v.ID]
	switch {
	case !used:
		there.label = label
		b.counts.admit(v, label)
	case err == nil && there.label != label:
		b.counts.volumes.add(b.mounts(v), v.Plugin, modeOf(v))
		if b.mounts(v) {
			return "", fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q: give the pods that share it on a node "+
				"the same seLinuxOptions, or all of them seLinuxChangePolicy: Recursive", v.Name, there.label, label)
		}
	}
	if !b.mounts(v) {
		label = ""
	}
	there.pods++
	b.shared[v.ID], b.wishes[at] = there, wish{v.ID, label}
	return label, nil
}

// ofPod is the one label that the pod's containers want for the volume.
func (b *Book) ofPod(pod *corev1.Pod, name string, v Volume) (string, error) {
	found, err := b.labels.ofVolume(pod, name)
	switch {
	case err != nil:
		b.counts.containers.add(b.mounts(v), modeOf(v))
		return "", err
	case len(found) > 1:
		b.counts.pods.add(b.mounts(v), modeOf(v))
		return "", fmt.Errorf("multiple SELinux labels found: %s: give the containers that have volume %s the same "+
			"seLinuxOptions, or the pod seLinuxChangePolicy: Recursive", strings.Join(found, ","), name)
	case len(found) == 0:
		return "", nil
	}
	return found[0], nil
}

// Leave takes note that the pod doesn't want the volume any more.
func (b *Book) Leave(pod, name string) {
	if !b.On() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(place{types.UID(pod), name})
}

func (b *Book) leave(at place) {
	w, ok := b.wishes[at]
	if !ok {
		return
	}
	delete(b.wishes, at)
	there := b.shared[w.id]
	if there.pods--; there.pods > 0 {
		b.shared[w.id] = there
		return
	}
	delete(b.shared, w.id)
}

// mounts reports whether volumes of these access modes are mounted with labels: without the gate, those that only one
// pod may have.
func (b *Book) mounts(v Volume) bool {
	if b.everyMode {
		return len(v.Modes) > 0
	}
	return slices.Equal(v.Modes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod})
}

// Elsewhere is why a volume has to wait that is mounted with another label: the pods that have it there go first. The
// words are the kubelet's.
func Elsewhere(id string) string {
	return fmt.Sprintf("waiting for unmount of volume %q, because it is already mounted to a different pod with a "+
		"different SELinux label", id)
}
