package resource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
)

// As long as device plugins can't register the bus says why, and the daemon is degraded. Whatever else goes well
// doesn't hide that.
func TestDevicePluginsCannotRegister(t *testing.T) {
	inBubble(t, func(b *bed) {
		w := &wiring{service: b.service}
		said := func(err error, health string) {
			t.Helper()
			w.registering(b.t.Context(), err)
			want := ""
			if err != nil {
				want = err.Error()
			}
			if got := b.node().RegistrationError; got != want || b.health != health {
				t.Errorf("the bus has %q, the health is %q", got, b.health)
			}
		}
		const why = "degraded device plugins can't register: the address is in use"
		said(errors.New("the address is in use"), why)
		full := func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.written = err
		}
		full(errors.New("no space left on device"))
		b.lists(gpu, "g0")
		if !strings.Contains(b.health, "no space left") || !strings.HasSuffix(b.health, "; device plugins can't register: "+
			"the address is in use") {
			t.Errorf("the health is %q", b.health)
		}
		full(nil)
		time.Sleep(time.Minute)
		if synctest.Wait(); b.health != why {
			t.Errorf("the health is %q", b.health)
		}
		said(nil, "healthy ")
	})
}

// The daemon that is wired hears of a socket that can't be bound.
func TestTheSocketOfDevicePluginsIsInTheWay(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(deviceplugin.SocketOf(dir), "in the way"), 0o750); err != nil {
		t.Fatal(err)
	}
	env := daemon.Env{Log: slog.New(slog.DiscardHandler), Health: &recorded{}, Metrics: prometheus.NewRegistry()}
	var working sync.WaitGroup
	w := &wiring{service: New(env, &holdings{}, nil), env: env, working: &working}
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.servePlugins(ctx, dir); err != nil {
		t.Fatal(err)
	}
	select {
	case change := <-w.service.loop.Changes():
		change()
	case <-time.After(time.Minute):
	}
	if why := w.service.publisher.unregistrable; !strings.Contains(why, "listen for device plugins") {
		t.Errorf("it hears %q", why)
	}
	cancel()
	working.Wait()
}

// inGrace is the end of what is said of a pod that waits from now on.
func inGrace() string { return "; until " + time.Now().Add(devices.Grace).UTC().Format(time.RFC3339) }

// A plugin that goes while it is asked is waited for, as one that was there before a restart.
func TestAPluginThatGoesWhileItIsAsked(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.fail = fmt.Errorf("%w: %s", deviceplugin.ErrAway, gpu)
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.says("a", "allocating: the device plugin isn't there: "+gpu+inGrace())
		b.mu.Lock()
		b.fail = nil
		b.mu.Unlock()
		time.Sleep(tryAgain)
		b.says("a", "allocated")

		b.lists(nic, "n0")
		b.mu.Lock()
		b.fail = deviceplugin.ErrSlow
		b.mu.Unlock()
		b.wants("b", map[corev1.ResourceName]string{nic: "1"})
		time.Sleep(6 * time.Minute)
		if a := b.allocation("b"); a.Phase != topic.AllocationRefused {
			t.Errorf("got %+v", a)
		}
	})
}

// It makes no difference whether its call fails first or its end is noticed first. A pod that comes while it is away is
// refused, as with the kubelet.
func TestTheEndOfAPluginIsNoticedAtAnyTime(t *testing.T) {
	away := deviceplugin.Report{Resource: gpu, Away: true}
	for _, c := range []struct {
		name, call string
		// noticed is true where the plugin's end is noticed before the call ends, answered where the call doesn't fail.
		noticed, answered bool
	}{
		{"before a call fails", gpu, true, false},
		{"after a call has failed", gpu, false, false},
		{"before it has answered what it prefers", "preferred " + gpu, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.lists(gpu, "g0", "g1")
				hang := make(chan struct{})
				b.hang[c.call] = hang
				if !c.answered {
					b.fail = deviceplugin.ErrAway
				}
				b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
				if c.noticed {
					b.service.report(b.t.Context(), away)
					synctest.Wait()
				}
				close(hang)
				synctest.Wait()
				b.service.report(b.t.Context(), away)
				b.says("a", "allocating: no healthy devices present; cannot allocate unhealthy devices "+gpu+inGrace())
				said := b.phases("a")
				b.wants("new", map[corev1.ResourceName]string{gpu: "1"})
				b.says("new", "refused UnexpectedAdmissionError: Allocate failed due to no healthy devices present; "+
					"cannot allocate unhealthy devices "+gpu+", which is unexpected")
				b.mu.Lock()
				b.fail = nil
				delete(b.hang, c.call)
				b.mu.Unlock()
				time.Sleep(time.Minute + tryAgain/2)
				if again := said(); len(again) > 0 {
					t.Errorf("while nothing changes it is said to be %v", again)
				}
				b.lists(gpu, "g0", "g1")
				b.says("a", "allocated")
			})
		})
	}
}

// The wait for a plugin that goes begins then, however long the pod has waited for its answer before, and it has an
// end.
func TestTheWaitForAPluginThatGoesBeginsThen(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		hang := make(chan struct{})
		b.hang[gpu], b.fail = hang, deviceplugin.ErrAway
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		time.Sleep(devices.Grace + time.Minute)
		close(hang)
		synctest.Wait()
		b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu, Away: true})
		time.Sleep(devices.Grace - time.Second)
		if a := b.allocation("a"); a.Phase != topic.Allocating {
			t.Errorf("before the end of the wait: %+v", a)
		}
		time.Sleep(time.Second + tryAgain)
		if a := b.allocation("a"); a.Phase != topic.AllocationRefused {
			t.Errorf("after it: %+v", a)
		}
	})
}
