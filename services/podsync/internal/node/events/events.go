// Package events is the third of decide, do, report: everything podsync writes on the bus.
package events

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/sleep"
)

// Reporter writes podsync's topics. Its methods never wait for the bus and may be called from several goroutines.
type Reporter struct {
	pods     *bus.Writer[topic.Pod]
	objects  *bus.Writer[topic.APIPod]
	statuses *bus.Writer[topic.PodStatus]
	mirrors  *bus.Writer[topic.MirrorPod]
	sources  *bus.Writer[topic.Sources]
	steps    *bus.Publisher[topic.Step]
	events   daemon.EventRecorder
	traced   topic.Sampling
	log      *slog.Logger
	// wake wakes the resource daemon, if it sleeps.
	wake func()
}

// New starts the writers on the connection. The steps of traced pods have spans. A pod that waits for the resource
// daemon wakes it by its alarm below runDir.
func New(c *bus.Conn, events daemon.EventRecorder, traced topic.Sampling, runDir string, log *slog.Logger) *Reporter {
	r := &Reporter{
		pods:     topic.PodUpdate.Writer(c),
		objects:  topic.PodObject.Writer(c),
		statuses: topic.StatusPatch.Writer(c),
		mirrors:  topic.PodMirror.Writer(c),
		sources:  topic.PodSources.Writer(c),
		steps:    topic.PodStep.Publisher(c),
		events:   events, traced: traced, log: log,
		wake: sleep.Waker(runDir, "resource", log),
	}
	r.pods.OnLate(r.wake)
	return r
}

// Pod states a pod as admitted, and what the API server has of its status; nil leaves either as it was stated.
func (r *Reporter) Pod(p *topic.Pod, object *topic.APIPod) {
	if object != nil {
		r.must(r.objects.Set(object.UID, *object))
	}
	if p != nil {
		r.must(r.pods.Set(string(p.Pod.UID), *p))
		if p.Allocates {
			r.wake()
		}
	}
}

// Status states a computed pod status.
func (r *Reporter) Status(s topic.PodStatus) { r.must(r.statuses.Set(s.UID, s)) }

// Gone removes everything that was stated of a pod, once its worker has ended it for good.
func (r *Reporter) Gone(uid string) {
	r.must(r.statuses.Delete(uid))
	r.must(r.objects.Delete(uid))
	r.must(r.pods.Delete(uid))
}

// Mirror states a mirror pod; MirrorGone takes it back.
func (r *Reporter) Mirror(m topic.MirrorPod) { r.must(r.mirrors.Set(m.UID, m)) }

// MirrorGone says that the API server has the mirror pod no longer.
func (r *Reporter) MirrorGone(uid string) { r.must(r.mirrors.Delete(uid)) }

// Sources states whether all pod sources have delivered, and which pods are wanted.
func (r *Reporter) Sources(s topic.Sources) { r.must(r.sources.Set("", s)) }

// Event records a Kubernetes Event on the pod, or on its container if one is named by its field path.
func (r *Reporter) Event(pod *corev1.Pod, fieldPath, eventType, reason, message string) {
	r.events.Record(topic.Event{
		Kind: "Pod", Ref: topic.RefOf(pod), FieldPath: fieldPath,
		Type: eventType, Reason: reason, Message: message, At: time.Now(),
	})
}

// NodeEvent records a Kubernetes Event on the node.
func (r *Reporter) NodeEvent(node, eventType, reason, message string) {
	r.events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: node, UID: node},
		Type: eventType, Reason: reason, Message: message, At: time.Now(),
	})
}

// quickStep is how long a step may take without an event of its beginning: that of its end is enough.
const quickStep = time.Second

// Step says that a worker has begun a step, once that takes its time; the returned function says that it ended, and
// how. The step is done with the returned context, so that what the runtime does for it is part of the step's span.
func (r *Reporter) Step(ctx context.Context, pod *corev1.Pod, name, container, image string,
) (within context.Context, end func(error)) {
	began := time.Now()
	step := topic.Step{
		Ref: topic.RefOf(pod), Name: name, Container: container, Image: image,
		Phase: topic.StepBegin, At: began,
	}
	if r.traced.Has(step.UID) {
		ctx = span(ctx, &step)
	}
	told := make(chan struct{})
	slow := time.AfterFunc(quickStep, func() {
		defer close(told)
		r.must(r.steps.Publish(step.UID, step))
	})
	return ctx, func(err error) {
		if !slow.Stop() {
			<-told // the end comes after the beginning
		}
		took := time.Since(began)
		// Whoever subtracts the duration finds when the step began, to the nanosecond.
		step.Phase, step.At, step.Duration = topic.StepEnd, began.Add(took), took
		if err != nil {
			step.Error = err.Error()
		}
		r.must(r.steps.Publish(step.UID, step))
	}
}

// span gives the step a span of its own, within that of the context.
func span(ctx context.Context, step *topic.Step) context.Context {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1) // 0 is no ID
	step.Span, step.Parent = hex.EncodeToString(id[:]), cri.SpanOf(ctx)
	return cri.Traced(ctx, topic.TraceID(step.UID), id)
}

// must logs what can't happen with valid keys: a UID that isn't a subject token, say.
func (r *Reporter) must(err error) {
	if err != nil {
		r.log.Error("can't put a message on the bus", "error", err)
	}
}

// FieldPath is the path of a container in Events, such as spec.containers{app}.
func FieldPath(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}
