package deviceplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin/plugintest"
)

func TestAPluginComesAndGoes(t *testing.T) {
	b := start(t, nil)
	p := b.serve(&plugintest.Plugin{}, "p.sock", plugintest.Device("b", 1, 0), plugintest.Device("a"))
	b.register(p)
	b.until(gpu + " a true [] b true [0 1]")
	sick := plugintest.Device("a")
	sick.Health = "Unhealthy"
	p.List(sick)
	b.until(gpu + " a false []")
	p.List()
	b.until(gpu)
	p.Stop()
	b.until(gpu + " away")
	if _, err := b.Allocate(t.Context(), gpu, []string{"a"}); !errors.Is(err, ErrAway) {
		t.Errorf("a plugin that is gone: %v", err)
	}
	b.register(b.serve(&plugintest.Plugin{}, "again.sock", plugintest.Device("c")))
	b.until(gpu + " c true []")
	if got := testutil.ToFloat64(b.ports.Metrics.registrations.WithLabelValues(gpu)); got != 2 {
		t.Errorf("%v registrations are counted, there were 2", got)
	}
}

// What the kubelet's test of failing plugins does.
func TestAPluginThatFails(t *testing.T) {
	b := start(t, nil)
	broken := func(context.Context, string) error { return errors.New("broken") }
	options := b.serve(&plugintest.Plugin{Fault: broken}, "o.sock")
	err := options.Register(t.Context(), b.socket())
	if err == nil || !strings.Contains(err.Error(), "failed to get device plugin options") ||
		!strings.Contains(err.Error(), "broken") {
		t.Errorf("without options it hears %v", err)
	}
	if calls := options.Calls(); !slices.Equal(calls, []string{"GetDevicePluginOptions"}) {
		t.Errorf("without options it is called %v", calls)
	}
	list := b.serve(&plugintest.Plugin{Resource: nic}, "l.sock")
	list.EndList(errors.New("broken"))
	b.register(list)
	b.until(nic + " away")
	if calls := list.Calls(); !slices.Equal(calls, []string{"GetDevicePluginOptions", "ListAndWatch"}) {
		t.Errorf("without a list it is called %v", calls)
	}
	ends := b.serve(&plugintest.Plugin{}, "e.sock", plugintest.Device("a"))
	b.register(ends)
	b.until(gpu + " a true []")
	ends.EndList(nil)
	b.until(gpu + " away")
	huge := b.serve(&plugintest.Plugin{}, "h.sock", plugintest.Device(strings.Repeat("x", maxAnswer)))
	b.register(huge)
	b.until(gpu + " away")
}

func TestARegistrationIsRefused(t *testing.T) {
	b := start(t, func(b *bed) { b.limits.dial = 50 * time.Millisecond })
	for name, c := range map[string]struct {
		version, resource, endpoint, want string
	}{
		"version": {
			"v1alpha", gpu, "p.sock",
			`requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]`,
		},
		"no name":   {"v1beta1", "", "p.sock", `the ResourceName "" is invalid`},
		"native":    {"v1beta1", "cpu", "p.sock", `the ResourceName "cpu" is invalid`},
		"ours":      {"v1beta1", "x.kubernetes.io/gpu", "p.sock", "is invalid"},
		"like ours": {"v1beta1", "mykubernetes.io/gpu", "p.sock", "is invalid"},
		"quota":     {"v1beta1", "requests.vendor.example/gpu", "p.sock", "is invalid"},
		"long":      {"v1beta1", "vendor.example/" + strings.Repeat("x", 64), "p.sock", "is invalid"},
		"very long": {"v1beta1", strings.Repeat("x", 60_000), "p.sock", "is invalid"},
		"too large": {"v1beta1", strings.Repeat("x", maxRequest), "p.sock", "larger than max"},
		"words":     {"v1beta1", "vendor.example/a b", "p.sock", "is invalid"},
		"no socket": {"v1beta1", gpu, "", "must be the name of a socket"},
		"ourselves": {"v1beta1", gpu, "./kubelet.sock", "must be the name of a socket"},
		"outside":   {"v1beta1", gpu, "../p.sock", "must be the name of a socket"},
		"absolute":  {"v1beta1", gpu, "/run/p.sock", "must be the name of a socket"},
		"long path": {"v1beta1", gpu, strings.Repeat("x", 108), "use a shorter name"},
		"not there": {"v1beta1", gpu, "none.sock", "failed to dial device plugin: nobody answers at"},
	} {
		err := plugintest.Register(t.Context(), b.socket(), &pluginapi.RegisterRequest{
			Version: c.version, ResourceName: c.resource, Endpoint: c.endpoint,
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2*maxError {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	if got := b.all(); len(got) > 0 {
		t.Errorf("reported are %q", got)
	}
}

func TestTooManyPlugins(t *testing.T) {
	b := newBed(t, nil)
	for i := range maxPlugins {
		b.plugins[string(rune(i+1))] = &plugin{}
	}
	if _, _, err := b.begin(t.Context(), gpu); err == nil {
		t.Error("one too many may register")
	}
	if _, done, err := b.begin(t.Context(), "\x01"); err != nil {
		t.Errorf("one of those that are there may not register again: %v", err)
	} else {
		done()
	}
	if len(b.registering) > 0 {
		t.Errorf("registering are %v", b.registering)
	}
}

// The owner hears why plugins can't register, and that they can.
func TestTheSocketCannotBeBound(t *testing.T) {
	b := newBed(t, nil)
	if err := os.MkdirAll(filepath.Join(b.socket(), "in the way"), 0o750); err != nil {
		t.Fatal(err)
	}
	err := b.Server.Run(t.Context())
	if err == nil || !slices.Equal(b.barred, []string{err.Error()}) {
		t.Fatalf("Run says %v, and the owner heard %q", err, b.barred)
	}
	if err := os.RemoveAll(b.socket()); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.barred) != 2 || b.barred[1] != "<nil>" {
		t.Errorf("the owner heard %q", b.barred)
	}
}

// At the start sockets vanish, which tells plugins to register again; the checkpoint stays.
func TestTheDirectory(t *testing.T) {
	b := newBed(t, nil)
	if err := os.MkdirAll(filepath.Join(b.dir, "below"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old.sock", socketName} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(b.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = listener.Close()
	}
	checkpoint := filepath.Join(b.dir, "kubelet_internal_checkpoint")
	if err := errors.Join(
		os.WriteFile(checkpoint, []byte("{}"), 0o600),
		os.Symlink("nowhere", filepath.Join(b.dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	b.run()
	for name, want := range map[string]bool{
		"old.sock": false, socketName: true, "kubelet_internal_checkpoint": true, "below": true, "link": true,
		"DEPRECATION": false, // plugins of the kubelet's own library don't register where it is
	} {
		if got := exists(t, filepath.Join(b.dir, name)); got != want {
			t.Errorf("%s is there: %v", name, got)
		}
	}
	b.stop()
	if exists(t, b.socket()) {
		t.Error("the socket is left")
	}
	b.run()
	b.register(b.serve(&plugintest.Plugin{}, "p.sock", plugintest.Device("a")))
	b.until(gpu + " a true []")
}

// Who removes the directory, to have plugins register again, must not keep them from it for good.
func TestADirectoryThatIsRemoved(t *testing.T) {
	b := newBed(t, func(b *bed) { b.look = time.Millisecond })
	ended := make(chan error, 1)
	go func() { ended <- b.Server.Run(t.Context()) }()
	b.served()
	b.register(b.serve(&plugintest.Plugin{}, "p.sock", plugintest.Device("a")))
	b.until(gpu + " a true []")
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errVanished) {
		t.Errorf("ended with %v", err)
	}
	b.until(gpu + " away")
	b.run()
	b.register(b.serve(&plugintest.Plugin{}, "q.sock", plugintest.Device("b")))
	b.until(gpu + " b true []")
}

func TestWithoutADirectory(t *testing.T) {
	b := newBed(t, nil)
	if err := os.WriteFile(b.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "make the directory") {
		t.Error(err)
	}
}

// The plugin is updated: the new one takes over, and its devices were never away.
func TestAPluginIsReplaced(t *testing.T) {
	b := start(t, nil)
	old := b.serve(&plugintest.Plugin{}, "old.sock", plugintest.Device("a"))
	b.register(old)
	b.until(gpu + " a true []")
	b.register(b.serve(&plugintest.Plugin{}, "new.sock", plugintest.Device("a"), plugintest.Device("b")))
	old.Drain() // ends when its list is asked for no longer
	b.until(gpu+" a true [] b true []", gpu+" away")
	if _, err := b.Allocate(t.Context(), gpu, []string{"b"}); err != nil {
		t.Errorf("allocate of the new one: %v", err)
	}
	// A third that can't be spoken to changes nothing.
	broken := func(context.Context, string) error { return errors.New("broken") }
	third := b.serve(&plugintest.Plugin{Fault: broken}, "3.sock")
	if err := third.Register(t.Context(), b.socket()); err == nil {
		t.Error("one that is broken has registered")
	}
	if _, err := b.Allocate(t.Context(), gpu, []string{"b"}); err != nil {
		t.Errorf("allocate of the new one afterwards: %v", err)
	}
	if got := b.all(); len(got) > 0 {
		t.Errorf("reported are %q", got)
	}
}

// A plugin that hangs while it registers holds up no other, and not itself when it is started again.
func TestARegistrationHangs(t *testing.T) {
	b := start(t, nil)
	begun := make(chan struct{})
	hangs := b.serve(&plugintest.Plugin{Fault: hang("GetDevicePluginOptions", begun)}, "h.sock")
	heard := make(chan error, 1)
	var registering sync.WaitGroup
	registering.Go(func() { heard <- hangs.Register(t.Context(), b.socket()) })
	<-begun
	b.register(b.serve(&plugintest.Plugin{Resource: nic}, "nic.sock", plugintest.Device("n")))
	b.until(nic + " n true []")
	b.register(b.serve(&plugintest.Plugin{}, "again.sock", plugintest.Device("a")))
	b.until(gpu + " a true []")
	if err := <-heard; err == nil || !strings.Contains(err.Error(), errAgain.Error()) {
		t.Errorf("the one that hangs hears %v", err)
	}
	registering.Wait()
}

// An owner that is slow about one resource is none about another, and Run ends nevertheless.
func TestTheOwnerIsSlow(t *testing.T) {
	b := start(t, func(b *bed) { b.hold[gpu] = true })
	b.register(b.serve(&plugintest.Plugin{}, "gpu.sock", plugintest.Device("a")))
	b.register(b.serve(&plugintest.Plugin{Resource: nic}, "nic.sock", plugintest.Device("n")))
	b.until(nic + " n true []")
	b.register(b.serve(&plugintest.Plugin{}, "gpu2.sock", plugintest.Device("a")))
	b.stop()
	if got := b.all(); len(got) > 0 {
		t.Errorf("reported are %q", got)
	}
}

// Run ends whatever plugins do.
func TestRunEnds(t *testing.T) {
	b := start(t, nil)
	begun := make(chan struct{})
	b.register(b.serve(&plugintest.Plugin{Fault: hang("Allocate", begun)}, "gpu.sock", plugintest.Device("a")))
	b.until(gpu + " a true []")
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := b.Allocate(t.Context(), gpu, []string{"a"}); !errors.Is(err, ErrAway) {
			t.Errorf("the allocation ends with %v", err)
		}
	})
	<-begun
	hangs := b.serve(&plugintest.Plugin{Resource: nic, Fault: hang("GetDevicePluginOptions", begun)}, "nic.sock")
	calling.Go(func() {
		if hangs.Register(t.Context(), b.socket()) == nil {
			t.Error("one that hangs has registered")
		}
	})
	<-begun
	b.Add("vendor.example/none", topic.PluginEndpoint{Endpoint: "/none"})
	b.stop()
	calling.Wait()
	if got := b.all(); len(got) > 0 {
		t.Errorf("reported are %q", got)
	}
}
