package csidriver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Rules are what a driver may expect of those who call it.
type Rules struct {
	// Stages and Attaches are true for a driver whose volumes are staged, or attached. Republishes is true for one that
	// has its volumes published again and again.
	Stages, Attaches, Republishes bool
	// Restages is true where a kubelet starts on a node that has volumes already: it knows them by their directories, and
	// has them staged and published again.
	Restages bool
}

// Judge returns what the node agent has done wrong by the log of the calls:
//
//   - a call that changes a volume begins during another, whose caller still waits for it;
//   - a volume is staged after NodeUnstageVolume and before the answer to that, or unstaged or detached while it is or
//     may be published, or detached while it is or may be staged;
//   - it is published without being staged, or staged or published without being attached;
//   - it is staged again, or published again at the same path, though the caller knows that it is.
//
// A caller that hung up soon after a call may not have taken note of its answer.
func Judge(calls []Call, rules Rules) []string {
	j := &judge{rules: rules, open: map[int64]*judged{}, volumes: map[string]*history{}}
	for _, c := range calls {
		j.take(c)
	}
	return j.faults
}

// unnoted is how long after the end of a call its caller may still be about to take note of it.
const unnoted = 10 * time.Second

// is is what is known of a volume, staged or published.
type is int

const (
	not is = iota
	perhaps
	certainly
)

// mark is what is known, and whether the caller may know less.
type mark struct {
	is      is
	excused bool
	ended   time.Time
}

// known reports whether the caller must know it too.
func (m mark) known() bool { return m.is == certainly && !m.excused }

// judged is a call, with what its request says.
type judged struct {
	method, volume, target string
	// staging is true where a volume that is to be published names where it was staged; own for one of the pod's spec.
	staging, own bool
	// gone is true once the caller doesn't wait any more, late once another call of the volume has begun since.
	gone, late bool
}

// history is what the calls say of a volume.
type history struct {
	under []*judged
	// unstaging is true from an unstaging's begin until its answer.
	unstaging, attached bool
	staged              mark
	published           map[string]mark
}

type judge struct {
	rules   Rules
	open    map[int64]*judged
	volumes map[string]*history
	faults  []string
}

func (j *judge) take(c Call) {
	switch {
	case c.Start:
		for id := range j.open {
			j.end(id, c.At, codes.Unavailable)
		}
	case c.HungUp:
		j.hangUp(c.At)
	case c.Gone:
		if o := j.open[c.ID]; o != nil {
			o.gone = true
		}
	case c.End:
		j.end(c.ID, c.At, codeOf(c.Code))
	default:
		j.begin(c)
	}
}

// changing are the calls of a node that change a volume.
var changing = []string{
	"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeExpandVolume",
}

func (j *judge) begin(c Call) {
	var r struct {
		VolumeID          string            `json:"volumeId"`
		StagingTargetPath string            `json:"stagingTargetPath"`
		TargetPath        string            `json:"targetPath"`
		VolumeContext     map[string]string `json:"volumeContext"`
	}
	node := slices.Contains(changing, c.Method)
	if !node && c.Method != "ControllerPublishVolume" && c.Method != "ControllerUnpublishVolume" {
		return
	}
	if err := json.Unmarshal(c.Request, &r); err != nil {
		j.faults = append(j.faults, fmt.Sprintf("%s: %v", c.Method, err))
		return
	}
	o := &judged{
		method: c.Method, volume: r.VolumeID, target: r.TargetPath, staging: r.StagingTargetPath != "",
		own: r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" || strings.HasPrefix(r.VolumeID, "csi-"),
	}
	h := j.volumes[o.volume]
	if h == nil {
		h = &history{published: map[string]mark{}}
		j.volumes[o.volume] = h
	}
	j.check(c, o, h)
	j.open[c.ID] = o
	if node {
		for _, other := range h.under {
			other.late = true
		}
		h.under = append(h.under, o)
	}
	switch o.method {
	case "NodeUnstageVolume":
		h.unstaging, h.staged = true, mark{is: perhaps}
	case "NodeUnpublishVolume":
		h.published[o.target] = mark{is: perhaps}
	case "ControllerUnpublishVolume":
		h.attached = false
	}
}

// check finds what is wrong about a call that begins.
func (j *judge) check(c Call, o *judged, h *history) {
	var wrong []string
	if slices.Contains(changing, o.method) {
		for _, other := range h.under {
			if !other.gone {
				wrong = append(wrong, other.method+" is under way")
			}
		}
	}
	switch o.method {
	case "NodeStageVolume", "NodePublishVolume":
		wrong = append(wrong, j.checkUp(o, h)...)
	case "NodeUnstageVolume", "ControllerUnpublishVolume":
		wrong = append(wrong, j.checkDown(o, h)...)
	}
	for _, why := range wrong {
		j.faults = append(j.faults, fmt.Sprintf("%s of %s at %s: %s", o.method, o.volume,
			c.At.UTC().Format("15:04:05.000"), why))
	}
}

// checkUp is check for a volume that a pod is to have.
func (j *judge) checkUp(o *judged, h *history) (wrong []string) {
	if j.rules.Attaches && !h.attached && !o.own {
		wrong = append(wrong, "it isn't attached")
	}
	if o.method == "NodeStageVolume" {
		if h.unstaging {
			wrong = append(wrong, "NodeUnstageVolume isn't answered")
		}
		if h.staged.known() && !j.rules.Restages {
			wrong = append(wrong, "it is staged")
		}
		return wrong
	}
	if j.rules.Stages && o.staging && !o.own && h.staged.is != certainly {
		wrong = append(wrong, "it isn't staged")
	}
	if m := h.published[o.target]; m.known() && !j.rules.Republishes && !j.rules.Restages {
		wrong = append(wrong, "it is published at "+o.target)
	}
	return wrong
}

// checkDown is check for a volume that no pod has any more.
func (j *judge) checkDown(o *judged, h *history) (wrong []string) {
	for _, m := range h.published {
		if m.is != not {
			wrong = append(wrong, "it is published, or may be")
		}
	}
	if o.method == "ControllerUnpublishVolume" && j.rules.Stages && h.staged.is != not {
		wrong = append(wrong, "it is staged, or may be")
	}
	return wrong
}

// end takes the end of a call. Of a driver that dies, no call is answered.
func (j *judge) end(id int64, at time.Time, code codes.Code) {
	o := j.open[id]
	if o == nil {
		return
	}
	delete(j.open, id)
	h := j.volumes[o.volume]
	h.under = slices.DeleteFunc(h.under, func(other *judged) bool { return other == o })
	if o.late {
		return // what its successor does counts
	}
	switch unsure := o.gone || !isAnswer(code); {
	case strings.HasPrefix(o.method, "Controller"):
		h.endOfController(o, code, unsure)
	default:
		h.endOfNode(o, code, unsure, at)
	}
}

// isAnswer reports whether the code says what has become of the volume, as the CSI specification has it.
func isAnswer(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

func (h *history) endOfController(o *judged, code codes.Code, unsure bool) {
	if o.method == "ControllerPublishVolume" {
		h.attached = h.attached || code == codes.OK
		return
	}
	h.attached = code != codes.OK && !unsure
}

func (h *history) endOfNode(o *judged, code codes.Code, unsure bool, at time.Time) {
	switch ok := code == codes.OK; o.method {
	case "NodeStageVolume":
		h.staged = done(h.staged, ok, unsure, at)
	case "NodePublishVolume":
		h.published[o.target] = done(h.published[o.target], ok, unsure, at)
		if code == codes.FailedPrecondition || code == codes.NotFound {
			h.staged.excused = true // the driver has forgotten it
		}
	case "NodeUnstageVolume":
		// A driver that says itself that its time was over has given up.
		h.unstaging = unsure && (o.gone || code != codes.DeadlineExceeded)
		if ok && !unsure {
			h.staged = mark{}
		}
	case "NodeUnpublishVolume":
		if ok && !unsure {
			delete(h.published, o.target)
		}
	}
}

// done is what is known after a call that was to do something.
func done(before mark, ok, unsure bool, at time.Time) mark {
	switch {
	case unsure && before.is != certainly:
		return mark{is: perhaps}
	case unsure:
		return mark{is: certainly, excused: true}
	case ok:
		return mark{is: certainly, ended: at}
	}
	return before
}

// hangUp takes that a caller has gone, which may not have taken note of the last answers.
func (j *judge) hangUp(at time.Time) {
	for _, h := range j.volumes {
		if at.Sub(h.staged.ended) < unnoted {
			h.staged.excused = true
		}
		for target, m := range h.published {
			if at.Sub(m.ended) < unnoted {
				m.excused = true
				h.published[target] = m
			}
		}
	}
}

// codeOf is the code of that name.
func codeOf(name string) codes.Code {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c
		}
	}
	return codes.Unknown
}
