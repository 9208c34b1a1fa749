package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

const (
	// component is the source of the node's Events; tools filter by it.
	component = "kubelet"
	// eventAge is how long the API server keeps an Event by default; an older one isn't worth recording.
	eventAge = time.Hour
	// giveWayTo is how long no pod may have been written before a Normal Event is; giveWayFor, how old such an Event gets
	// at most while pods are being written: while many pods start at once, an Event costs the API server as much as a status, and
	// nobody waits for it.
	giveWayTo  = 200 * time.Millisecond
	giveWayFor = 10 * time.Second
	// brokenFor is how long an Event is sent again that the API server fails on (500), as where a webhook for one namespace is down, and
	// fullFor, one that it has no room for (429), as where one namespace has used up its share: the others wait behind it. An overload
	// is answered with 429 too, to all, and passes.
	brokenFor = time.Minute
	fullFor   = 5 * time.Minute
)

// eventAPI is what the recorder needs of the API server.
type eventAPI interface {
	CreateEvent(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	PatchEvent(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error)
}

// recorder records the Events of all daemons, one after the other, with client-go's aggregation of
// similar ones and its filter against floods (25 at once, then one each 5 minutes, per object).
type recorder struct {
	env        daemon.Env
	api        eventAPI
	correlator *record.EventCorrelator
	wrote      *lastWrite
}

func newRecorder(env daemon.Env, api eventAPI, wrote *lastWrite) *recorder {
	return &recorder{env: env, api: api, wrote: wrote, correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{})}
}

// run records until ctx ends. An Event is acknowledged to the bus once it is recorded or given up.
func (r *recorder) run(ctx context.Context) {
	for o := range topic.KubeEvent.Subscribe(ctx, r.env.Bus, bus.From{Durable: "events"}) {
		r.giveWay(ctx, o.Value)
		if r.record(ctx, o.Value) {
			o.Ack()
		}
	}
}

// giveWay lets the writing of pods go before a Normal Event.
func (r *recorder) giveWay(ctx context.Context, e topic.Event) {
	for e.Type == corev1.EventTypeNormal {
		wait := min(giveWayTo-r.wrote.since(), giveWayFor-time.Since(e.At))
		if wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// record tells whether it is done with the Event; it isn't when ctx has ended.
func (r *recorder) record(ctx context.Context, e topic.Event) bool {
	if time.Since(e.At) > eventAge {
		return true
	}
	result, err := r.correlator.EventCorrelate(eventObject(e, r.env.Config.NodeName))
	if err != nil {
		r.env.Log.Warn("Event can't be aggregated and is recorded alone", "reason", e.Reason, "error", err)
	}
	if result == nil || result.Skip {
		return true
	}
	begun := time.Now()
	for delay := retryFirst; ; delay = min(2*delay, retryMax) {
		recorded, err := r.send(ctx, result)
		switch {
		case err == nil:
			r.correlator.UpdateState(recorded)
			return true
		case ctx.Err() != nil:
			return false
		case apierrors.IsAlreadyExists(err):
			// The daemon ended between recording and acknowledging it.
			return true
		case time.Since(begun) >= worth(err), time.Since(e.At) > eventAge:
			r.env.Log.Warn("the API server doesn't take an Event; it is dropped", "namespace", e.Namespace, "name", e.Name, "reason", e.Reason, "error", err)
			return true
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// worth is how long an Event is sent again after that failure.
func worth(err error) time.Duration {
	switch {
	case !unreachable(err):
		return 0
	case apierrors.IsInternalError(err):
		return brokenFor
	case apierrors.IsTooManyRequests(err):
		return fullFor
	}
	return eventAge
}

// send counts up an Event that is recorded already, and creates it where it isn't, or not any more.
func (r *recorder) send(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	if result.Event.Count > 1 && len(result.Patch) > 0 {
		recorded, err := r.api.PatchEvent(ctx, result.Event, result.Patch)
		if !apierrors.IsNotFound(err) {
			return recorded, err
		}
	}
	fresh := result.Event.DeepCopy()
	fresh.ResourceVersion = ""
	return r.api.CreateEvent(ctx, fresh)
}

// eventName follows from the object and the time, so that a second delivery of the same message doesn't make a second Event.
func eventName(e topic.Event) string {
	suffix := fmt.Sprintf(".%x", e.At.UnixNano())
	name := e.Name
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > most {
		hash := fnv.New32a()
		hash.Write([]byte(e.UID))
		ending := fmt.Sprintf("-%08x", hash.Sum32())
		name = name[:most-len(ending)] + ending
	}
	return name + suffix
}

// eventObject is the API object of an Event.
func eventObject(e topic.Event, node string) *corev1.Event {
	namespace := e.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(e.At)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: eventName(e), Namespace: namespace, Annotations: e.Annotations},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID), FieldPath: e.FieldPath,
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message,
		Source:              corev1.EventSource{Component: component, Host: node},
		ReportingController: component, ReportingInstance: node,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}
