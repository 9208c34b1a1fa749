package resource

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/sleep"
	"kubelot.dev/services/resource/internal/cpus"
)

// sleepless is a sleeper that never sleeps: it notes when it should.
type sleepless struct {
	answer error
	unable bool

	mu    sync.Mutex
	alarm time.Time // since when the alarm is set; zero while it isn't
	asked []time.Time
}

func (s *sleepless) Able() bool { return !s.unable }

func (s *sleepless) Set(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm.IsZero() {
		s.alarm = time.Now()
	}
	return nil
}

func (s *sleepless) Unset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = time.Time{}
}

func (s *sleepless) Sleep(string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return s.answer
}

// noted is what it has noted once everything has come to rest.
func (s *sleepless) noted() (alarm time.Time, asked []time.Time) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarm, s.asked
}

// nowhere is where device plugins of plugins_registry go.
type nowhere struct{}

func (nowhere) Add(string, topic.PluginEndpoint) {}
func (nowhere) Remove(string)                    {}
func (nowhere) Idle() bool                       { return true }

// silent is where a plugin has registered that lists nothing.
type silent struct{ nowhere }

func (silent) Idle() bool { return false }

// tired starts the daemon with a sleeper.
func (b *bed) tired() *sleepless {
	b.stop()
	s := &sleepless{answer: sleep.ErrLater}
	b.sleeper = s
	b.start()
	b.settle()
	return s
}

// registers has the lease daemon tell of the Node, which has this capacity.
func (b *bed) registers(capacity map[corev1.ResourceName]string) {
	b.t.Helper()
	conn := b.bus.Conn("lease")
	defer conn.Close()
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{}},
	}
	for name, q := range capacity {
		node.Status.Capacity[name] = resource.MustParse(q)
	}
	if err := errors.Join(topic.NodeObject.Writer(conn).Set("", node), conn.Flush(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// loses has the bus lose what it says of the node.
func (b *bed) loses() {
	b.t.Helper()
	if err := topic.ResourcesOfNode.Writer(b.others).Delete(""); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// plug has the volume daemon tell of all plugins.
func (b *bed) plug(all ...topic.Plugin) {
	b.t.Helper()
	conn := b.bus.Conn("volume")
	defer conn.Close()
	for _, p := range all {
		p.PluginEndpoint = topic.PluginEndpoint{
			Endpoint: "/run/a.sock", Socket: "/run/a-reg.sock", Instance: "1", Versions: []string{"v1"},
		}
		if err := topic.PluginRegistered.Writer(conn).Set(topic.PluginKey(p.Type, p.Name), p); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := conn.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func TestSleepsWhereNothingNeedsIt(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.tired()
		began := time.Now()
		time.Sleep(sleepAfter + lookEvery + time.Second)
		_, asked := s.noted()
		if len(asked) != 1 {
			b.t.Fatalf("it sleeps at %v, having begun at %v", asked, began)
		}
		if ahead := asked[0].Sub(began); ahead < sleepAfter-time.Second {
			b.t.Errorf("it sleeps after %v already", ahead)
		}
		// A client was there: the next time is as far away.
		time.Sleep(time.Until(asked[0].Add(sleepAfter - time.Second)))
		alarm, asked := s.noted()
		if len(asked) != 1 || alarm.IsZero() {
			b.t.Errorf("it sleeps at %v, the alarm is set at %v", asked, alarm)
		}
		time.Sleep(2 * time.Second)
		if _, asked = s.noted(); len(asked) != 2 {
			b.t.Errorf("it sleeps at %v", asked)
		}
	})
}

// The alarm is there for long enough before: who gives it work and then wakes it is heard, one way or the other.
func TestAlarmIsSetBeforeTheSleep(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.tired()
		alarm, _ := s.noted()
		for ; alarm.IsZero(); alarm, _ = s.noted() {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Until(alarm.Add(sleep.Drowsy - time.Second)))
		alarm, asked := s.noted()
		if alarm.IsZero() || len(asked) > 0 {
			b.t.Fatalf("alarm set at %v, sleeps at %v", alarm, asked)
		}
		// Work comes in the last moment.
		pod := b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		if alarm, _ = s.noted(); !alarm.IsZero() {
			b.t.Error("the alarm is still set")
		}
		time.Sleep(time.Hour)
		if _, asked = s.noted(); len(asked) > 0 {
			b.t.Fatalf("it sleeps at %v, although a pod waits", asked)
		}
		b.state(pod, topic.Terminated)
		if err := b.pods.Delete("a"); err != nil {
			t.Fatal(err)
		}
		b.settle()
		gone := time.Now()
		time.Sleep(sleepAfter + lookEvery + time.Second)
		if _, asked = s.noted(); len(asked) != 1 || asked[0].Sub(gone) < sleepAfter-time.Second {
			b.t.Errorf("the pod has gone at %v, and it sleeps at %v", gone, asked)
		}
	})
}

func TestWhatKeepsItAwake(t *testing.T) {
	for name, given := range map[string]func(b *bed){
		"a policy":        func(b *bed) { b.policy = cpus.PolicyStatic },
		"a device plugin": func(b *bed) { b.plug(topic.Plugin{Type: topic.DevicePlugin, Name: gpu}) },
		"a silent plugin": func(b *bed) { b.announce = silent{} },
		"a DRA driver":    func(b *bed) { b.plug(topic.Plugin{Type: topic.DRAPlugin, Name: "gpu.example"}) },
		"claims": func(b *bed) {
			b.claims = &told{busy: true}
			b.registers(nil)
		},
		"a Node that isn't known": func(b *bed) {
			b.claims = &told{}
			b.loses()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				given(b)
				s := b.tired()
				time.Sleep(time.Hour)
				if alarm, asked := s.noted(); len(asked) > 0 || !alarm.IsZero() {
					b.t.Errorf("it sleeps at %v", asked)
				}
			})
		})
	}
	t.Run("a cluster doesn't", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.claims = &told{}
			b.registers(nil)
			s := b.tired()
			time.Sleep(sleepAfter + lookEvery + time.Second)
			if _, asked := s.noted(); len(asked) == 0 {
				b.t.Error("it doesn't sleep")
			}
		})
	})
	// What is shared after it stays on the bus.
	t.Run("a policy that was on doesn't", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.policy = cpus.PolicyStatic
			b.tired()
			b.policy = cpus.PolicyNone
			for range 2 { // also once it has said so already
				s := b.tired()
				time.Sleep(sleepAfter + lookEvery + time.Second)
				if _, asked := s.noted(); len(asked) == 0 {
					b.t.Error("it doesn't sleep")
				}
				if shared := b.node().SharedCPUs; shared != "0-3" {
					b.t.Errorf("containers share the CPUs %q", shared)
				}
			}
		})
	})
	t.Run("a CSI driver doesn't", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.plug(topic.Plugin{Type: topic.CSIPlugin, Name: "csi.example"})
			s := b.tired()
			time.Sleep(sleepAfter + lookEvery + time.Second)
			if _, asked := s.noted(); len(asked) == 0 {
				b.t.Error("it doesn't sleep")
			}
		})
	})
	t.Run("devices", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			s := b.tired()
			b.lists(gpu, "gpu-0")
			time.Sleep(time.Hour)
			if _, asked := s.noted(); len(asked) > 0 {
				b.t.Errorf("it sleeps at %v", asked)
			}
		})
	})
	t.Run("a disk that can't be written", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.mu.Lock()
			b.written = context.DeadlineExceeded
			b.mu.Unlock()
			s := b.tired()
			time.Sleep(time.Hour)
			if _, asked := s.noted(); len(asked) > 0 {
				b.t.Errorf("it sleeps at %v", asked)
			}
		})
	})
}
