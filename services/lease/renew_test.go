package lease

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newRenewer(s *server) *renewer {
	return &renewer{api: s, node: "n1", duration: 40 * time.Second, log: slog.New(slog.DiscardHandler)}
}

// renewing runs a renewer in a bubble.
func renewing(t *testing.T, s *server, body func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); newRenewer(s).run(ctx) }()
		synctest.Wait()
		body()
		cancel()
		<-done
	})
}

func TestTheLeaseIsRenewedEachTenSeconds(t *testing.T) {
	s := &server{}
	renewing(t, s, func() {
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
	renewing(t, s, func() {
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

func TestAnOutageOpensTheConnectionsAnew(t *testing.T) {
	s := &server{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}}
	renewing(t, s, func() {
		s.setDown(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, _, n := s.renewed(); n == 0 {
			t.Error("the old connections are still used")
		}
		_, before, _ := s.renewed()
		s.setDown(false)
		time.Sleep(renewRetryMax)
		synctest.Wait()
		if _, after, _ := s.renewed(); after == before {
			t.Error("not renewed within seconds after the outage")
		}
	})
}
