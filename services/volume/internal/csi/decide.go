package csi

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// step is how far a volume or its use by a pod is, as its record on disk says. A call is recorded before it is made.
type step string

const (
	// stepNone has no record.
	stepNone step = ""
	// stepWanted is a pod's that waits until the volume is staged. The driver has not been asked to publish it, or has
	// refused for good.
	stepWanted     step = "wanted"
	stepStaging    step = "staging"
	stepStaged     step = "staged"
	stepUnstaging  step = "unstaging"
	stepPublishing step = "publishing"
	// stepMounted is published by the driver, but the files are not the group's yet, or the device isn't mapped.
	stepMounted step = "mounted"
	// stepPublished with a call under way that publishes again stays what it is: the pod has the volume.
	stepPublished    step = "published"
	stepUnpublishing step = "unpublishing"
	// stepUncertain is a kubelet's record, one of an earlier boot or of a mount that is gone, or of a volume that the
	// driver has refused to take back: there may be a mount.
	stepUncertain step = "uncertain"
)

// facts are what the next action follows from.
type facts struct {
	driver string
	// wanted reports whether the pod is to have the volume.
	wanted bool
	// again asks for a volume that is published to be published once more (requiresRepublish).
	again bool
	// podOnly leaves the volume staged, for others to see to it.
	podOnly bool
	// persistent volumes may be staged and attached; those of a pod's own spec never are.
	persistent bool
	// unattached says what is waited for before the volume is attached; empty if it is, or needn't be.
	unattached string
	// alone reports whether only one pod may have the volume (ReadWriteOncePod).
	alone bool
	// volume and pod are the records; others is how many other pods have one, holders how many of these have the volume
	// or may have it.
	volume, pod     step
	others, holders int
	// relabel reports whether nobody uses the volume, and it is or may be staged with an SELinux label that the pod
	// doesn't want.
	relabel bool
	// elsewhere says that other pods have the volume with an SELinux label that the pod doesn't want; empty if they
	// don't.
	elsewhere string
	// bound is a place where the volume is in use although no record says so. It is filled only for a volume that may be
	// unstaged.
	bound string
	// finish reports whether there is something left to do here once the driver has published: files are given to the
	// pod's fsGroup, a device is mapped.
	finish bool
	// plugin is the registered driver's; nil while there is none.
	plugin *driver.Capabilities
}

// kind is what is done next.
type kind string

const (
	done      kind = "done"
	wait      kind = "wait"
	stage     kind = "stage"
	unstage   kind = "unstage"
	publish   kind = "publish"
	unpublish kind = "unpublish"
	// attaching isn't done here but waited for.
	attaching kind = "attach"
	// want records that the pod wants the volume, so that the attach-detach controller hears of it.
	want kind = "want"
	// own gives the files to the pod's fsGroup, or the device to the pod.
	own kind = "own"
	// drop removes the record of a pod that never had the volume.
	drop kind = "drop"
	// forget removes the record of a volume that the driver doesn't stage.
	forget kind = "forget"
)

// action is what is done next, and for wait why.
type action struct {
	kind kind
	why  string
	// onItsWay reports whether somebody works on what is waited for: it is no failure yet. attaches reports whether that
	// is the attacher.
	onItsWay, attaches bool
}

// needsAttachment reports whether the volume must be attached for the action.
func (a action) needsAttachment() bool { return a.kind == stage || a.kind == publish }

// next is what to do about the volume for the pod.
func next(f facts) action {
	if f.wanted {
		return bringUp(f)
	}
	return takeDown(f)
}

func bringUp(f facts) action {
	switch {
	case f.pod == stepPublished && !f.again:
		return action{kind: done}
	case f.isAnothers():
		return action{kind: wait, why: plugin.ErrInUse.Error()}
	case f.elsewhere != "":
		return action{kind: wait, why: f.elsewhere, onItsWay: true}
	case f.plugin == nil:
		return missing(f)
	case f.pod == stepUnpublishing:
		return action{kind: unpublish}
	case f.stages() && f.volume == stepUnstaging:
		// While it isn't answered the driver may still be at it, and would undo what Stage does.
		return action{kind: unstage}
	case f.stages() && f.relabel:
		// Stage leaves the label of what is mounted already as it is.
		return undo(f)
	case f.pod == stepMounted:
		return action{kind: own}
	case f.unattached != "":
		return awaitAttachment(f)
	case f.stages() && f.volume != stepStaged:
		return action{kind: stage}
	}
	return action{kind: publish}
}

// stages reports whether the volume is one that the driver stages.
func (f facts) stages() bool { return f.persistent && f.plugin != nil && f.plugin.Stage }

// awaitAttachment waits until the volume is attached. The record of the pod comes first: by it the attach-detach
// controller hears of the volume.
func awaitAttachment(f facts) action {
	if f.pod == stepNone {
		return action{kind: want}
	}
	return action{kind: wait, why: f.unattached, onItsWay: true, attaches: true}
}

// isAnothers reports whether the volume is for one pod, and another has it or may have it.
func (f facts) isAnothers() bool {
	return f.alone && f.holders > 0 && (f.pod == stepNone || f.pod == stepWanted)
}

func takeDown(f facts) action {
	switch {
	case f.pod == stepWanted:
		return action{kind: drop}
	case f.pod == stepNone && (f.podOnly || f.volume == stepNone || f.others > 0):
		return action{kind: done}
	case f.plugin == nil:
		return missing(f)
	case f.pod != stepNone:
		return action{kind: unpublish}
	case !f.plugin.Stage && f.bound == "":
		return action{kind: forget}
	}
	return undo(f)
}

// undo unstages a volume that nobody has.
func undo(f facts) action {
	if f.bound != "" {
		return action{kind: wait, why: "it is or may be in use at " + f.bound}
	}
	return action{kind: unstage}
}

// missing waits for the driver, in the kubelet's words.
func missing(f facts) action {
	return action{
		kind: wait, why: fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", f.driver),
	}
}

// outcome is what the end of a call says of what it was to do.
type outcome string

const (
	succeeded outcome = "succeeded"
	// failed calls have done nothing and do nothing any more.
	failed outcome = "failed"
	// uncertain ones may have done it, or may be at it still.
	uncertain outcome = "uncertain"
)

// outcomeOf judges the error of a call by its code, as the CSI specification has them.
func outcomeOf(err error) outcome {
	if err == nil {
		return succeeded
	}
	s, isStatus := status.FromError(err)
	if !isStatus {
		return uncertain
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return uncertain
	}
	return failed
}

// isUnstaged reports whether the driver refuses to publish because it doesn't know the volume as staged: one that keeps
// its stages in memory forgets them with its process.
func isUnstaged(err error) bool {
	code := status.Code(err)
	return code == codes.FailedPrecondition || code == codes.NotFound
}

// after is the step that follows from a call's outcome; before is what was recorded before the call.
func after(k kind, f facts, before step, o outcome) step {
	switch {
	case o == succeeded && k == publish && f.finish && before != stepPublished:
		return stepMounted
	case o == uncertain && k == publish && before == stepPublished:
		return before
	case o == uncertain:
		return during(k, before)
	case o == succeeded:
		return map[kind]step{stage: stepStaged, publish: stepPublished}[k]
	case k == unstage || k == unpublish:
		// A refusal is an answer: the driver isn't at it any more, and may be asked for the opposite.
		return stepUncertain
	case before == stepUncertain || before == stepPublished:
		// It may be there since before this process: only its opposite makes sure.
		return before
	case k == publish:
		return stepWanted
	}
	return stepNone
}

// during is what is recorded while a call is under way.
func during(k kind, before step) step {
	if before == stepPublished && k == publish {
		return before
	}
	return map[kind]step{
		stage: stepStaging, unstage: stepUnstaging, publish: stepPublishing, unpublish: stepUnpublishing,
	}[k]
}
