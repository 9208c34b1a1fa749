package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/daemon/tree"
	"kubelot.dev/services/volume/internal/attach"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// maxSteps is more than a volume can need, in case a driver answers so that no end is reached.
const maxSteps = 8

// task is one pod's wish about one volume.
type task struct {
	target
	wanted, again, podOnly bool
	// request is the pod's; it has none where the pod is to lose the volume.
	request *plugin.Request
}

// settle does what is to be done until the volume is as wished. It is called with the volume's lock.
func (v *Volumes) settle(ctx context.Context, t task) error {
	for range maxSteps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		end, err := v.advance(ctx, &t)
		if end || err != nil {
			return err
		}
	}
	return t.failed(publish, errors.New("its state keeps changing; somebody else works on it"))
}

// advance does the next action, and reports whether none is left.
func (v *Volumes) advance(ctx context.Context, t *task) (end bool, err error) {
	f, c, err := v.observe(ctx, t)
	defer c.Release()
	if err != nil {
		return false, err
	}
	a := next(f)
	switch a.kind {
	case done:
		return true, nil
	case wait:
		return false, t.waits(a)
	case publish:
		t.again = false
	}
	return false, t.failed(a.kind, v.do(ctx, *t, a.kind, f, c))
}

// what begins the messages about a call, in the kubelet's words.
func (t target) what(k kind) string {
	name := map[kind]string{
		attaching: "MountVolume.WaitForAttach", stage: "MountVolume.MountDevice", publish: "MountVolume.SetUp",
		own: "MountVolume.SetUp", unpublish: "UnmountVolume.TearDown", drop: "UnmountVolume.TearDown",
		unstage: "UnmountDevice", forget: "UnmountDevice", want: "MountVolume.SetUp",
	}[k]
	if t.block {
		name = map[kind]string{
			attaching: "MapVolume.WaitForAttach", stage: "MapVolume.SetUpDevice", publish: "MapVolume.MapPodDevice",
			own: "MapVolume.MapBlockVolume", unpublish: "UnmapVolume.UnmapPodDevice", drop: "UnmapVolume.UnmapPodDevice",
			unstage: "UnmapDevice", forget: "UnmapDevice", want: "MapVolume.SetUpDevice",
		}[k]
	}
	return fmt.Sprintf("%s failed for volume %q : ", name, t.name)
}

// reason is the Event's.
func (t target) reason() string {
	if t.block {
		return "FailedMapVolume"
	}
	return "FailedMount"
}

func (t task) failed(k kind, err error) error {
	if err == nil {
		return nil
	}
	return &plugin.Failure{Reason: t.reason(), What: t.what(k), Err: err, Unattached: k == attaching}
}

// waits is what the volume waits for.
func (t task) waits(a action) error {
	k := publish
	if a.attaches {
		k = attaching
	}
	failure := &plugin.Failure{Reason: t.reason(), What: t.what(k), Err: errors.New(a.why), OnItsWay: a.onItsWay}
	if a.attaches {
		failure.Attacher, failure.Unattached = t.driver, true
	}
	return failure
}

// observe reads what the next action follows from.
func (v *Volumes) observe(ctx context.Context, t *task) (facts, *driver.Client, error) {
	f, err := v.observeDisk(*t)
	if err != nil {
		return f, nil, t.failed(publish, err)
	}
	if v.ports.Labels.On() {
		f.elsewhere = v.elsewhere(f, *t)
	}
	c := v.drivers.Client(t.driver)
	switch {
	case c == nil:
		return f, nil, nil
	case t.podOnly:
		f.plugin = &driver.Capabilities{} // every driver can unpublish
		return f, c, nil
	}
	if f.plugin, err = c.Capabilities(ctx); err != nil {
		return f, c, t.failed(publish, err)
	}
	f.finish = t.wanted && (t.block || t.setsGroup(f.plugin))
	if a := next(f); t.wanted && t.persistent && attach.Must(t.object) && a.needsAttachment() {
		// The kubelet counts one look: before it stages, or else publishes for the first time.
		err = v.look(ctx, t, &f, a.kind == stage || !f.stages() && !f.again)
	}
	return f, c, err
}

// look looks whether the volume is attached. One that is counts where that is asked for.
func (v *Volumes) look(ctx context.Context, t *task, f *facts, counts bool) error {
	ended := plugin.Operation(ctx, "verify_controller_attached_volume", pluginName+":"+t.driver)
	found, err := v.Attached.Look(ctx, attach.ID{Driver: t.driver, Handle: t.handle})
	if counts && found.Waits == "" {
		ended(err)
	}
	f.unattached, t.publishContext = found.Waits, found.Context
	return t.failed(attaching, err)
}

// observeDisk is what is on disk. A damaged record of a volume that is wanted is one of an uncertain step.
func (d disk) observeDisk(t task) (facts, error) {
	f := facts{
		driver: t.driver, wanted: t.wanted, again: t.again, podOnly: t.podOnly, persistent: t.persistent,
		alone: slices.Contains(t.modes, corev1.ReadWriteOncePod),
	}
	var err error
	if t.dir != "" {
		if f.pod, err = d.stepIn(t, t.dir, t.point); err != nil {
			return f, err
		}
		if t.block && f.pod == stepNone && exists(t.point) {
			f.pod = stepUncertain // the kubelet's, which has no record for each pod
		}
	}
	if !t.persistent || t.podOnly {
		return f, nil
	}
	if f.volume, err = d.stepIn(t, d.stageDir(t.target), d.staging(t.target)); err != nil {
		return f, err
	}
	u, err := d.uses(t.target)
	f.others, f.holders = u.others, u.holders
	if f.relabel = d.mustRelabel(f, t); err == nil && (!t.wanted || f.relabel) {
		f.bound, err = d.bound(t.target, u)
	}
	return f, err
}

// stepIn is the step that the record in dir says, of what the driver mounts at point.
func (d disk) stepIn(t task, dir, point string) (step, error) {
	r, err := readRecord(dir)
	switch {
	case errors.Is(err, errDamaged) && t.wanted:
		return stepUncertain, nil
	case err != nil:
		return stepNone, err
	case r != nil && !r.isOf(t.target):
		return stepNone, fmt.Errorf("%s has another volume, %q of driver %s: two volumes of a pod can't have the name %q",
			dir, r[keyHandle], r[keyDriver], filepath.Base(dir))
	}
	return d.step(r, point)
}

// do does one action.
func (v *Volumes) do(ctx context.Context, t task, k kind, f facts, c *driver.Client) error {
	p, before, content := v.podPlace(t.target), f.pod, t.record(v.node)
	if k == stage || k == unstage || k == forget {
		p, before, content = v.stagePlace(t.target), f.volume, t.common(v.node)
	}
	if k == unstage {
		delete(content, keySELinux) // it has the label that its record says
	}
	switch k {
	case forget:
		return v.clear(p)
	case want:
		return v.note(p.dir, content, stepWanted)
	case drop:
		if err := v.clear(p); err != nil {
			v.ports.Log.Warn("a volume that the pod never had is there nevertheless", "path", p.dir, "error", err)
			return v.note(p.dir, content, stepUncertain)
		}
		return nil
	case own:
		if err := t.finish(ctx); err != nil {
			return err
		}
		return v.noteDone(p, content, stepPublished)
	}
	err := v.call(ctx, t, recorded{k, f, c, p, before, content})
	return errors.Join(err, v.afterPublish(ctx, t, k, f, err))
}

// finish does what is left to do for the pod once the driver has published the volume.
func (t task) finish(ctx context.Context) error {
	if t.block {
		return t.mapDevice()
	}
	return t.giveToGroup(ctx)
}

// recorded is a call and the record that is kept of it: where that is, and its step before the call.
type recorded struct {
	kind    kind
	facts   facts
	client  *driver.Client
	place   place
	before  step
	content record
}

// call makes a call: what is recorded before it says that it may have happened, what is recorded after it what the
// outcome says.
func (v *Volumes) call(ctx context.Context, t task, n recorded) error {
	k, f := n.kind, n.facts
	doIt, err := v.prepare(ctx, t, k, f, n.client)
	if err != nil {
		return err
	}
	if t.request != nil {
		t.request.Calls.Alive()
	}
	if err := v.noteFirst(t, k, f); err != nil {
		return err
	}
	if err := v.note(n.place.dir, n.content, during(k, n.before)); err != nil {
		if k != unpublish {
			return err
		}
		// The disk is full, perhaps: the end of a pod frees some of it. The record that is there says that the pod has the
		// volume, so that a crash now makes the next process unpublish it again.
		v.ports.Log.Warn("unpublishing a volume without a record of it", "path", n.place.dir, "error", err)
	}
	calling, cancel := driver.CallContext(ctx)
	err = doIt(calling)
	o := outcomeOf(err)
	if k == unstage && status.Code(err) == codes.DeadlineExceeded && calling.Err() == nil {
		o = failed // it is the driver's word: it has given up, and is not at it any more
	}
	cancel()
	switch s := after(k, f, n.before, o); s {
	case stepNone, stepWanted:
		return errors.Join(err, v.takeBack(ctx, t, n))
	case stepStaged, stepMounted, stepPublished:
		return errors.Join(err, v.noteDone(n.place, n.content, s))
	default:
		return errors.Join(err, v.note(n.place.dir, n.content, s))
	}
}

// noteFirst writes the record besides the call's own that must be there before.
func (v *Volumes) noteFirst(t task, k kind, f facts) error {
	switch {
	case k == publish && t.block && f.volume == stepNone:
		// The driver stages nothing, but the kubelet finds a device by this record.
		return v.note(v.stageDir(t.target), t.common(v.node), stepStaged)
	case k == stage && f.pod == stepNone:
		// What is staged for a pod is found again by its record.
		return v.note(t.dir, t.record(v.node), stepWanted)
	}
	return nil
}

// afterPublish does what follows from the outcome of NodePublishVolume besides the pod's record.
func (v *Volumes) afterPublish(ctx context.Context, t task, k kind, f facts, err error) error {
	switch {
	case k != publish:
		return nil
	case err == nil && f.pod == stepPublished && f.finish:
		// What the driver has written anew isn't the group's. The pod keeps the volume meanwhile.
		return t.finish(ctx)
	case isUnstaged(err) && t.persistent && f.plugin.Stage:
		return v.note(v.stageDir(t.target), t.common(v.node), stepUncertain)
	}
	return nil
}

// noteDone notes a step that the driver has done, and whether with a mount.
func (d disk) noteDone(p place, content record, s step) error {
	mounted, err := mountpoint.Mounted(p.point)
	if err != nil {
		return err
	}
	if mounted {
		content[keyMounted] = "true"
	}
	return d.note(p.dir, content, s)
}

// takeBack removes what a call that has failed for good, or has undone another, leaves.
func (d disk) takeBack(ctx context.Context, t task, n recorded) error {
	switch {
	case n.kind == publish && t.persistent:
		// The pod still wants it, so its record stays: what is staged is found again by it.
		return errors.Join(removeEmpty(n.place.point), d.note(n.place.dir, n.content, stepWanted))
	case n.kind == unstage && t.block:
		// What a driver has left there is a note of its own, not a volume: the kubelet removes it too.
		if err := tree.Remove(ctx, n.place.point); err != nil {
			return err
		}
	}
	return d.clear(n.place)
}
