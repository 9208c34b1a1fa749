package source

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/kube"
)

// ordered is a set of pods in the order of their arrival.
type ordered struct {
	order []*listed
	pods  map[string]*listed
}

// listed is a pod of the set.
type listed struct {
	pod *corev1.Pod
	// told is true once a list had the pod, and grace its grace period in the last one; nil for a pod that wasn't deleted.
	told  bool
	grace *int64
}

func newOrdered() *ordered { return &ordered{pods: map[string]*listed{}} }

func (o *ordered) set(pod *corev1.Pod) {
	uid := string(pod.UID)
	if l := o.pods[uid]; l != nil {
		l.pod = pod
		return
	}
	l := &listed{pod: pod}
	o.pods[uid], o.order = l, append(o.order, l)
}

func (o *ordered) remove(uid string) {
	l := o.pods[uid]
	if l == nil {
		return
	}
	delete(o.pods, uid)
	i := slices.Index(o.order, l)
	o.order = slices.Delete(o.order, i, i+1)
}

// restPerPod is the rest after work that looks at every pod of the node, for each of them, and restMost its bound. Such
// work takes some ten microseconds for each pod, and a thousand pods that start at once change thousands of times: so
// it takes about a twentieth of the time. How long it took by the clock says nothing of that on a machine that is busy
// starting containers, and a new pod would wait for the machine.
const restPerPod, restMost = 200 * time.Microsecond, 200 * time.Millisecond

// Rest is the rest after work that looked at so many pods.
func Rest(pods int) time.Duration { return min(time.Duration(pods)*restPerPod, restMost) }

// Gather hands over all pods after a change, once the first list is complete. Changes that come while a set is handed
// over, and during the rest after it, go into the next set.
func Gather(changes <-chan kube.Change[corev1.Pod], handle func([]*corev1.Pod)) {
	pods := newOrdered()
	synced, changed := false, false
	var rest <-chan time.Time // nil when a set may be handed over
	hand := func() {
		handle(pods.list())
		changed, rest = false, time.After(Rest(len(pods.order)))
	}
	for {
		select {
		case change, open := <-changes:
			if !open {
				if synced && changed {
					hand()
				}
				return
			}
			changed = true
			switch {
			case change.Synced:
				synced = true
			case change.Deleted:
				if synced && pods.takeLast(change.Object) {
					hand()
					changed = true
				}
				pods.remove(string(change.Object.UID))
			default:
				pods.set(change.Object)
			}
		case <-rest:
			rest = nil
		}
		if synced && changed && rest == nil {
			hand()
		}
	}
}

// takeLast stores the last state of a pod that is gone if its grace period is shorter than the last list said, and
// reports whether it is: a pod that is deleted by force is changed and removed at the same moment. A pod that was in no
// list was never started and isn't ended.
func (o *ordered) takeLast(last *corev1.Pod) bool {
	l, grace := o.pods[string(last.UID)], last.DeletionGracePeriodSeconds
	if l == nil || !l.told || grace == nil || l.grace != nil && *l.grace <= *grace {
		return false
	}
	l.pod = last
	return true
}

func (o *ordered) list() []*corev1.Pod {
	list := make([]*corev1.Pod, len(o.order))
	for i, l := range o.order {
		list[i] = l.pod
		l.told, l.grace = true, l.pod.DeletionGracePeriodSeconds
	}
	return list
}
