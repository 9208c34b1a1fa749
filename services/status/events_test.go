package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

// eventServer is the Events part of an API server.
type eventServer struct {
	mu      sync.Mutex
	events  map[string]*corev1.Event
	err     error
	patches int
}

func (s *eventServer) CreateEvent(_ context.Context, e *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if s.events[e.Name] != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), e.Name)
	}
	s.events[e.Name] = e.DeepCopy()
	return e, nil
}

func (s *eventServer) PatchEvent(_ context.Context, e *corev1.Event, _ []byte) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if s.events[e.Name] == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("events"), e.Name)
	}
	s.patches++
	s.events[e.Name] = e.DeepCopy()
	return e, nil
}

func (s *eventServer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *eventServer) all() []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*corev1.Event
	for _, e := range s.events {
		list = append(list, e)
	}
	return list
}

// recording runs a recorder in a bubble and hands the body a function that publishes an Event.
func recording(t *testing.T, body func(server *eventServer, publish func(reason, message string), restart func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		podsync := b.Conn("podsync")
		defer podsync.Close()
		out := topic.KubeEvent.Publisher(podsync)
		server := &eventServer{events: map[string]*corev1.Event{}}
		start := func() (stop func()) {
			conn := b.Conn("status")
			r := newRecorder(daemon.Env{Config: &config.Config{NodeName: "n1"}, Bus: conn, Log: slog.New(slog.DiscardHandler)},
				server, &lastWrite{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); r.run(ctx) }()
			synctest.Wait()
			return func() { cancel(); <-done; conn.Close() }
		}
		stop := start()
		body(server, func(reason, message string) {
			time.Sleep(time.Millisecond)
			e := topic.Event{
				Kind: "Pod", Ref: topic.Ref{Namespace: "default", Name: "web", UID: uid}, FieldPath: "spec.containers{app}",
				Type: corev1.EventTypeNormal, Reason: reason, Message: message, At: time.Now(),
			}
			if err := out.Publish("podsync", e); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}, func() { stop(); stop = start() })
		stop()
	})
}

func TestAnEventLooksLikeTheKubelets(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
		publish("Started", "Container started")
		all := server.all()
		if len(all) != 1 {
			t.Fatalf("%d Events, want 1", len(all))
		}
		e := all[0]
		if e.Source.Component != "kubelet" || e.Source.Host != "n1" || e.ReportingController != "kubelet" ||
			e.Namespace != "default" {
			t.Errorf("source %+v, namespace %s", e.Source, e.Namespace)
		}
		if o := e.InvolvedObject; o.Kind != "Pod" || string(o.UID) != uid || o.FieldPath != "spec.containers{app}" ||
			o.APIVersion != "v1" {
			t.Errorf("involved object %+v", o)
		}
	})
}

func TestEqualEventsAreCounted(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
		for range 3 {
			publish("BackOff", "Back-off restarting failed container")
		}
		all := server.all()
		if len(all) != 1 || all[0].Count != 3 {
			t.Errorf("%d Events, the first counted %d times; want one counted 3 times", len(all), all[0].Count)
		}
	})
}

func TestAFloodIsCutAt25(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
		for i := range 60 {
			publish(fmt.Sprintf("Reason%d", i), "flood")
		}
		if n := len(server.all()); n != 25 {
			t.Errorf("%d Events, want 25", n)
		}
	})
}

func TestEventsWaitForTheAPIServer(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), restart func()) {
		server.fail(errDown)
		publish("Pulling", "one")
		publish("Pulled", "two")
		time.Sleep(time.Minute)
		restart()
		server.fail(nil)
		time.Sleep(retryMax)
		synctest.Wait()
		if n := len(server.all()); n != 2 {
			t.Errorf("%d Events after the outage, want 2", n)
		}
	})
}

func TestARefusedEventHoldsUpNoOther(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
		server.fail(apierrors.NewForbidden(corev1.Resource("events"), "x", nil))
		publish("Killing", "in a namespace that is terminating")
		server.fail(nil)
		publish("Started", "elsewhere")
		if all := server.all(); len(all) != 1 || all[0].Reason != "Started" {
			t.Errorf("Events %v, want the second alone", all)
		}
	})
}

// A webhook of one namespace that is down makes the API server fail on its Events, and a limit for one namespace
// (admission plugin EventRateLimit) makes it refuse them: those of the others go on.
func TestAnEventThatTheAPIServerFailsOnHoldsUpOthersForAWhileOnly(t *testing.T) {
	for failure, patience := range map[error]time.Duration{
		apierrors.NewInternalError(errors.New("failed calling webhook")):   brokenFor,
		apierrors.NewTooManyRequests("limit reached on type Namespace", 0): fullFor,
	} {
		recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
			server.fail(failure)
			publish("Killing", "one")
			time.Sleep(patience + retryMax)
			server.fail(nil)
			publish("Started", "two")
			if all := server.all(); len(all) != 1 || all[0].Reason != "Started" {
				t.Errorf("Events %v after %v, want the first dropped and the second recorded", all, failure)
			}
		})
	}
}

// An overloaded API server answers 429 to all; no Event is lost for that soon.
func TestEventsOutliveAnOverload(t *testing.T) {
	recording(t, func(server *eventServer, publish func(reason, message string), _ func()) {
		server.fail(apierrors.NewTooManyRequests("too many requests", 1))
		publish("Pulling", "one")
		publish("Pulled", "two")
		time.Sleep(fullFor - retryMax)
		server.fail(nil)
		time.Sleep(retryMax)
		synctest.Wait()
		if n := len(server.all()); n != 2 {
			t.Errorf("%d Events after the overload, want 2", n)
		}
	})
}

func TestNamesOfEventsFit(t *testing.T) {
	long := topic.Event{
		Kind: "Pod", Ref: topic.Ref{Namespace: "default", Name: strings.Repeat("a", 253), UID: "u1"},
		At: t0,
	}
	other := long
	other.UID = "u2"
	name := eventName(long)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || name == eventName(other) ||
		name != eventName(long) {
		t.Errorf("%s: %v", name, problems)
	}
	if name := eventName(topic.Event{Ref: topic.Ref{Name: "web"}, At: t0}); name != fmt.Sprintf("web.%x", t0.UnixNano()) {
		t.Error(name)
	}
}

func TestAnEventKeepsItsAnnotations(t *testing.T) {
	e := eventObject(topic.Event{
		Kind: "Pod", Ref: topic.Ref{Name: "web"}, At: t0,
		Annotations: map[string]string{"starved_resource": "memory"},
	}, "n1")
	if e.Annotations["starved_resource"] != "memory" {
		t.Errorf("annotations %v", e.Annotations)
	}
}

func TestAnEventOfTheNodeIsInTheDefaultNamespace(t *testing.T) {
	e := eventObject(topic.Event{Kind: "Node", Ref: topic.Ref{Name: "n1", UID: "n1"}, At: t0}, "n1")
	if e.Namespace != metav1.NamespaceDefault || e.InvolvedObject.Namespace != "" || e.InvolvedObject.UID != "n1" {
		t.Errorf("%+v", e)
	}
}
