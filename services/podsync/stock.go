package podsync

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/services/podsync/internal/worker"
)

const (
	// housekeepingEvery is how often what nobody wants is looked for; nothing on a pod's way waits for it.
	housekeepingEvery = 30 * time.Second
	// retainedWait is how long one try to read what the bus kept of an earlier run may take.
	retainedWait = 5 * time.Second
	// runtimeRetry is how often a runtime that doesn't answer at start is asked again.
	runtimeRetry = time.Second
)

// takeStock reads what an earlier run left: the pods in the runtime, and what was said of them on the bus. It waits for both: a
// termination that was forgotten would start its pod again.
func (d *dispatcher) takeStock(ctx context.Context) error {
	if err := d.readRuntime(ctx); err != nil {
		return err
	}
	for {
		err := d.readBus(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d.log.Warn("what an earlier run left on the bus can't be read; trying again", "error", err)
		d.health.Set(topic.Degraded, "waiting for what an earlier run left on the bus: "+err.Error())
	}
}

func (d *dispatcher) readBus(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, retainedWait, errors.New("the bus doesn't answer"))
	defer cancel()
	var err error
	if d.before, err = topic.PodUpdate.Read(ctx, d.bus); err != nil {
		return err
	}
	if d.status, err = topic.StatusPatch.Read(ctx, d.bus); err != nil {
		return err
	}
	mirrors, err := topic.PodMirror.Read(ctx, d.bus)
	for uid := range mirrors {
		d.mirrors[uid] = true
	}
	return err
}

// readRuntime waits for the runtime: without knowing what runs, nothing may be started.
func (d *dispatcher) readRuntime(ctx context.Context) error {
	for {
		all, err := observe.All(ctx, d.runtime)
		if err == nil {
			for _, obs := range all {
				d.observed[obs.UID] = obs
			}
			return nil
		}
		if err := d.runtimeAway(ctx, err); err != nil {
			return err
		}
	}
}

// orphans ends what is on this node and wanted by nobody: pods in the runtime, pods that only the bus remembers,
// cgroups and directories. It does nothing before every source has delivered.
func (d *dispatcher) orphans() {
	if !d.seen || !d.facts.Ready() {
		return
	}
	if err := d.ensureTree(); err != nil {
		d.log.Warn("the node's cgroups aren't as they should be", "error", err)
	}
	wanted := d.wantedUIDs()
	for uid, obs := range d.observed {
		if !wanted[types.UID(uid)] {
			d.endOrphan(uid, obs)
		}
	}
	for uid, before := range d.before {
		if !wanted[types.UID(uid)] && d.workers[uid] == nil {
			d.endOrphan(uid, topic.PodObservation{Ref: topic.RefOf(before.Pod)})
		}
	}
	d.before, d.status = nil, nil // a pod that comes again is another life
	d.sweep(wanted)
	d.updateQOS()
}

// updateQOS gives the QoS classes the CPU shares of the pods that are active now. A failure is told of when it is new.
func (d *dispatcher) updateQOS() {
	err := d.cgroups.UpdateQOS(d.active(), d.merge.Ready())
	if err != nil && (d.qosErr == nil || err.Error() != d.qosErr.Error()) {
		d.log.Warn("CPU shares of the QoS cgroups can't be set; trying again with the next pod", "error", err)
	}
	d.qosErr = err
}

func (d *dispatcher) wantedUIDs() map[types.UID]bool {
	wanted := map[types.UID]bool{}
	for i := range d.desired.Pods {
		wanted[d.desired.Pods[i].Pod.UID] = true
	}
	for uid := range d.workers {
		wanted[types.UID(uid)] = true
	}
	return wanted
}

// endOrphan gives a pod that nobody wants a worker that ends it.
func (d *dispatcher) endOrphan(uid string, obs topic.PodObservation) {
	cfg := worker.Config{Source: topic.SourceAPI, FirstSeen: time.Now(), Pod: skeleton(obs)}
	if before, ok := d.before[uid]; ok && before.Pod != nil {
		cfg.Pod, cfg.Source, cfg.Restored, cfg.FirstSeen = before.Pod, before.Source, &before, before.FirstSeen
		cfg.Previous = d.status[uid].Status
	}
	d.log.Info("pod that no source wants is ended", "pod", cfg.Pod.Name, "namespace", cfg.Pod.Namespace, "uid", uid)
	e := d.start(cfg, obs)
	if cfg.Restored == nil {
		d.meter.Orphaned()
		e.stray = true
	}
	e.removed = true
	e.Remove()
}

// skeleton is as much of a pod as the runtime tells.
func skeleton(obs topic.PodObservation) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: obs.Namespace, Name: obs.Name, UID: types.UID(obs.UID)}}
	seen := map[string]bool{}
	for _, c := range obs.Containers {
		if !seen[c.Name] {
			seen[c.Name] = true
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return pod
}

func probeKey(key string) (uid, container, kind string, ok bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// hasAppArmor tells whether the kernel enforces AppArmor profiles.
func hasAppArmor() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(data), "Y")
}
