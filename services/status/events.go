package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

const (
	// component is the source of the node's Events; tools filter by it.
	component = "kubelet"
	// eventAge is how long the API server keeps an Event by default; an older one isn't worth recording.
	eventAge = time.Hour
	// A Normal Event waits until no pod has been written for giveWayTo, but no longer than giveWayFor: an Event costs the
	// API server as much as a status, and while many pods start at once nobody waits for Events.
	giveWayTo  = 200 * time.Millisecond
	giveWayFor = 10 * time.Second
	// eventsPerPod bounds the correlator's cache: so many recent Events for each pod that the node may have. Without it,
	// the Events of pods that have gone would fill the cache up to client-go's limit of 4,096.
	eventsPerPod = 4
	// brokenFor and fullFor are how long an Event is sent again, because the others wait behind it. brokenFor is for an
	// Event on which the API server fails (500), for example because the webhook of a namespace is down. fullFor is for an
	// Event for which it has no room (429), for example because a namespace has used up its share. The API server answers
	// 429 to everybody when it is overloaded, which passes.
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
	correlator := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
		LRUCacheSize: min(eventsPerPod*int(env.Config.Kubelet.MaxPods), 4096),
	})
	return &recorder{env: env, api: api, wrote: wrote, correlator: correlator}
}

// run records until ctx ends. An Event is acknowledged to the bus once it is recorded or given up.
func (r *recorder) run(ctx context.Context) {
	b := &backlog{wake: make(chan struct{}, 1)}
	var collecting sync.WaitGroup
	defer collecting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := topic.KubeEvent.Subscribe(ctx, r.env.Bus, bus.From{Durable: "events"})
	collecting.Go(func() { b.collect(events, r.tooMany) })
	for {
		o, ok := b.next(ctx)
		if !ok {
			return
		}
		r.giveWay(ctx, o.Value)
		if r.record(ctx, o.Value) {
			o.Ack()
		}
	}
}

func (r *recorder) tooMany(dropped int) {
	r.env.Log.Warn("there are more Events than eventRecordQPS allows, dropping the oldest Normal ones",
		"dropped", dropped, "hint", "see eventRecordQPS and eventBurst in the configuration, and kubelot tap for all Events")
}

// giveWay lets the writing of pods go before a Normal Event.
func (r *recorder) giveWay(ctx context.Context, e topic.Event) {
	begun := time.Now()
	for e.Type == corev1.EventTypeNormal && ctx.Err() == nil {
		// The time of day may have been set back since the Event was made.
		waited := max(time.Since(e.At), time.Since(begun))
		wait := min(giveWayTo-r.wrote.since(), giveWayFor-waited)
		if wait <= 0 {
			return
		}
		pause.For(ctx, wait)
	}
}

// record records an Event or gives it up. It returns false if ctx ended first.
func (r *recorder) record(ctx context.Context, e topic.Event) (done bool) {
	if time.Since(e.At) > eventAge {
		return true
	}
	result, err := r.correlator.EventCorrelate(eventObject(e, r.env.Config.NodeName))
	if err != nil {
		r.env.Log.Warn("can't aggregate an Event, recording it alone", "reason", e.Reason, "error", err)
	}
	if result == nil || result.Skip {
		return true
	}
	begun := time.Now()
	for failures := 1; ; failures++ {
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
			r.env.Log.Warn("the API server did not accept an Event, dropping it", "namespace", e.Namespace, "name", e.Name,
				"reason", e.Reason, "error", err)
			return true
		}
		if pause.For(ctx, delay(failures)); ctx.Err() != nil {
			return false
		}
	}
}

// worth is how long an Event is sent again after the failure err.
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

// send increases the count of an Event that is recorded already. If the API server doesn't have it, send creates it.
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

// eventName follows from the object and the time, so that a second delivery of the same message doesn't make a second
// Event.
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
