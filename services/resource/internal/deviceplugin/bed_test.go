package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/services/resource/internal/deviceplugin/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu, nic = "vendor.example/gpu", "vendor.example/nic"

// bed is a server and its owner.
type bed struct {
	*testing.T
	*Server
	registry *prometheus.Registry
	stop     func()
	// hold has reports of these resources wait until their context ends.
	hold map[string]bool

	mu      sync.Mutex
	reports []string
	news    chan struct{}
	// barred is why plugins can't register, as it was told each time.
	barred []string
}

// newBed makes a server that doesn't run yet. change may change it.
func newBed(t *testing.T, change func(*bed)) *bed {
	t.Helper()
	b := &bed{T: t, registry: prometheus.NewRegistry(), hold: map[string]bool{}, news: make(chan struct{}, 1)}
	metrics, err := NewMetrics(b.registry)
	if err != nil {
		t.Fatal(err)
	}
	b.Server = New(filepath.Join(t.TempDir(), "d"), Ports{
		Report: b.report, Registering: b.bar, Metrics: metrics, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	b.limits.dial, b.limits.options = 5*time.Minute, 5*time.Minute // the machine may stand still
	if change != nil {
		change(b)
	}
	return b
}

// start runs a server until the test ends.
func start(t *testing.T, change func(*bed)) *bed {
	t.Helper()
	b := newBed(t, change)
	b.run()
	return b
}

func (b *bed) run() {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Server.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.stop = func() { cancel(); running.Wait() }
	b.Cleanup(b.stop)
	b.served()
}

// served waits until the service answers: from then on no socket is removed.
func (b *bed) served() {
	b.Helper()
	err := plugintest.Register(b.Context(), b.socket(), &pluginapi.RegisterRequest{Version: "none"})
	if err == nil || !strings.Contains(err.Error(), "is not supported") {
		b.Fatal(err)
	}
}

func (b *bed) socket() string { return filepath.Join(b.dir, socketName) }

func (b *bed) bar(_ context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.barred = append(b.barred, fmt.Sprint(err))
}

func (b *bed) report(ctx context.Context, r Report) {
	if b.hold[r.Resource] {
		<-ctx.Done()
		return
	}
	text := r.Resource + " away"
	if !r.Away {
		text = r.Resource
		for _, d := range r.Devices {
			text += fmt.Sprintf(" %s %v %v", d.ID, d.Healthy, d.Nodes)
		}
	}
	b.mu.Lock()
	b.reports = append(b.reports, text)
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *bed) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reports)
}

// until waits until a report says this, and forgets it and all before it. None of these may say one of the others.
func (b *bed) until(text string, never ...string) {
	b.Helper()
	limit := time.After(time.Minute)
	for {
		b.mu.Lock()
		i := slices.Index(b.reports, text)
		if i >= 0 {
			for _, earlier := range b.reports[:i] {
				if slices.Contains(never, earlier) {
					b.Errorf("before %q there is %q", text, earlier)
				}
			}
			b.reports = slices.Delete(b.reports, 0, i+1)
		}
		b.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-b.news:
		case <-limit:
			b.Fatalf("waiting for %q, there are %q", text, b.all())
		}
	}
}

// plugin is one that has the devices and serves on a socket in the directory.
func (b *bed) serve(p *plugintest.Plugin, name string, devices ...*pluginapi.Device) *plugintest.Plugin {
	b.Helper()
	if p.Resource == "" {
		p.Resource = gpu
	}
	if devices != nil {
		p.List(devices...)
	}
	p.Serve(b.T, filepath.Join(b.dir, name))
	return p
}

func (b *bed) register(p *plugintest.Plugin) {
	b.Helper()
	if err := p.Register(b.Context(), b.socket()); err != nil {
		b.Fatal(err)
	}
}

// hang waits until the call's context ends; begun says that it has begun.
func hang(method string, begun chan<- struct{}) func(context.Context, string) error {
	return func(ctx context.Context, m string) error {
		if !strings.HasPrefix(m, method) {
			return nil
		}
		if begun != nil {
			begun <- struct{}{}
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}
