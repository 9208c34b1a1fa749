package lease

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// said is the health as it was last reported. The tests look at it while its daemon waits.
type said struct{ text string }

func (s *said) Set(state topic.HealthState, message string) { s.text = string(state) + " " + message }

func newRenewer(s *server, health *said) *renewer {
	return &renewer{
		api: s, node: "n1", duration: 40 * time.Second, log: slog.New(slog.DiscardHandler), health: health,
		renewed: func(time.Time) {},
	}
}

// renewing runs a renewer in a bubble. The body is handed the health that it reports.
func renewing(t *testing.T, s *server, body func(health *said)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		health := &said{}
		go func() { defer close(done); newRenewer(s, health).run(ctx) }()
		synctest.Wait()
		body(health)
		cancel()
		<-done
	})
}

func TestTheLeaseIsRenewedEachTenSeconds(t *testing.T) {
	s := &server{}
	renewing(t, s, func(*said) {
		if lease, _, _ := s.renewed(); lease != nil {
			t.Fatal("a lease without its Node")
		}
		s.mu.Lock()
		s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		lease, before, _ := s.renewed()
		if lease == nil || *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "n1" ||
			lease.OwnerReferences[0].UID != "uid-1" {
			t.Fatalf("lease %+v", lease)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if _, after, _ := s.renewed(); after-before != 10 {
			t.Errorf("%d renewals in 100 s, want 10", after-before)
		}
	})
}

func TestALeaseThatSomebodyChangedIsReadAgain(t *testing.T) {
	s := &server{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}}
	renewing(t, s, func(*said) {
		s.mu.Lock()
		s.lease.ResourceVersion = "9999"
		s.mu.Unlock()
		_, before, _ := s.renewed()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if _, after, _ := s.renewed(); after == before {
			t.Error("not renewed after a conflict")
		}
	})
}

func TestAnOutageOpensTheConnectionsAnewAndIsTold(t *testing.T) {
	s := &server{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}}
	renewing(t, s, func(health *said) {
		s.setDown(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, _, n := s.renewed(); n == 0 {
			t.Error("the old connections are still used")
		}
		if !strings.HasPrefix(health.text, "degraded can't renew the node's lease: ") {
			t.Errorf("the daemon says that it is %s", health.text)
		}
		_, before, _ := s.renewed()
		s.setDown(false)
		time.Sleep(renewRetryMax)
		synctest.Wait()
		if _, after, _ := s.renewed(); after == before {
			t.Error("not renewed within seconds after the outage")
		}
		if health.text != "healthy " {
			t.Errorf("after the outage the daemon says that it is %s", health.text)
		}
	})
}

// The time of day is set back by an hour. The node lifecycle controller takes only a later renewTime for a sign of
// life.
func TestAClockThatIsSetBackDoesNotDateTheLeaseBack(t *testing.T) {
	ahead := metav1.NowMicro()
	s := &server{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}}
	renewing(t, s, func(*said) {
		s.mu.Lock()
		ahead = metav1.NewMicroTime(time.Now().Add(time.Hour))
		s.lease.Spec.RenewTime = &ahead
		s.renew(s.lease)
		s.mu.Unlock()
		for range 3 {
			time.Sleep(11 * time.Second)
			synctest.Wait()
			lease, _, _ := s.renewed()
			if !lease.Spec.RenewTime.After(ahead.Time) {
				t.Errorf("renewed at %s, want after %s", lease.Spec.RenewTime, ahead)
			}
			ahead = *lease.Spec.RenewTime
		}
	})
}
