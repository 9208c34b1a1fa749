package resource

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/deviceplugin"
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
