package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"kubelot.dev/bus/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a plugin that registers.
type fake struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
	// hang has it not answer, deaf not take what it is told.
	hang, deaf bool
	told       chan *registerapi.RegistrationStatus
}

func (f *fake) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.info, nil
}

func (f *fake) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if f.deaf {
		return nil, errors.New("deaf")
	}
	select {
	case f.told <- s:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// serve serves the plugin on a socket until the function is called, which leaves the socket.
func serve(t *testing.T, socket string, f *fake) func() {
	t.Helper()
	f.told = make(chan *registerapi.RegistrationStatus, 16)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, f)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	var once sync.Once
	stop := func() { once.Do(func() { server.Stop(); served.Wait() }) }
	t.Cleanup(stop)
	return stop
}

func csi(name string, versions ...string) *fake {
	if versions == nil {
		versions = []string{"1.0.0"}
	}
	return &fake{info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: name, Endpoint: "/run/" + name + ".sock", SupportedVersions: versions,
	}}
}

// board is what is published.
type board struct {
	mu   sync.Mutex
	now  map[string]topic.Plugin
	news chan struct{}
}

func (b *board) Set(key string, p topic.Plugin) error {
	b.change(func() { b.now[key] = p })
	return nil
}

func (b *board) Delete(key string) error {
	b.change(func() { delete(b.now, key) })
	return nil
}

func (b *board) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *board) all() map[string]topic.Plugin {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.now)
}

// until waits until what is published is as wanted.
func (b *board) until(t *testing.T, what string, holds func(map[string]topic.Plugin) bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for !holds(b.all()) {
		select {
		case <-b.news:
		case <-limit:
			t.Fatalf("%s: published are %v", what, slices.Sorted(maps.Keys(b.all())))
		}
	}
}

// start runs a registry.
func start(t *testing.T, published map[string]topic.Plugin, log io.Writer) (string, *board) {
	t.Helper()
	return begin(t, t.TempDir(), published, log)
}

func begin(t *testing.T, root string, published map[string]topic.Plugin, log io.Writer) (string, *board) {
	t.Helper()
	if log == nil {
		log = t.Output()
	}
	b := &board{now: maps.Clone(published), news: make(chan struct{}, 1)}
	if b.now == nil {
		b.now = map[string]topic.Plugin{}
	}
	r := New(root, Ports{Publisher: b, Published: published, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	run(t, r)
	return r.dir, b
}

// run runs a registry until the test's end.
func run(t *testing.T, r *Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func has(key string) func(map[string]topic.Plugin) bool {
	return func(all map[string]topic.Plugin) bool { _, ok := all[key]; return ok }
}

func TestADriverRegistersComesBackAndGoes(t *testing.T) {
	dir, b := start(t, nil, nil)
	socket := filepath.Join(dir, "d-reg.sock")
	d := csi("a.example", "0.3.0", "1.2.0")
	stop := serve(t, socket, d)
	b.until(t, "the driver", has("CSIPlugin.a:example"))
	if told := <-d.told; !told.GetPluginRegistered() {
		t.Errorf("the driver hears %v", told)
	}
	first := b.all()["CSIPlugin.a:example"]
	if first.Endpoint != "/run/a.example.sock" || first.Socket != socket || first.Since.IsZero() {
		t.Errorf("%+v", first)
	}
	stop()
	again := csi("a.example")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	serve(t, socket, again)
	b.until(t, "another instance", func(all map[string]topic.Plugin) bool {
		now, ok := all["CSIPlugin.a:example"]
		return ok && now.Instance != first.Instance
	})
	if told := <-again.told; !told.GetPluginRegistered() {
		t.Errorf("the new instance hears %v", told)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	b.until(t, "no driver", func(all map[string]topic.Plugin) bool { return len(all) == 0 })
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("v", maxDriverName+1)
	for name, c := range map[string]struct {
		info *registerapi.PluginInfo
		want string
	}{
		"type": {
			&registerapi.PluginInfo{Type: "Other", Name: "a"},
			"no handler registered for plugin type: Other at socket",
		},
		"leaves":     {csi("../../etc").info, "can't be the name of a CSI driver"},
		"dots":       {csi("..").info, "can't be the name of a CSI driver"},
		"two dots":   {csi("a..b").info, "can't be the name of a CSI driver"},
		"dash":       {csi("a.-b").info, "can't be the name of a CSI driver"},
		"long":       {csi(long).info, "can't be the name of a CSI driver"},
		"no version": {csi("a", []string{}...).info, "names no version"},
		"versions":   {csi("a", "0.3.0", "2.0.0").info, "must speak CSI 1"},
		"nonsense":   {csi("a", "one").info, "must speak CSI 1"},
		"control":    {csi("a", "1.0.0\n").info, "can't be a version"},
		"dra name": {
			&registerapi.PluginInfo{Type: "DRAPlugin", Name: "A/b", SupportedVersions: draServices}, "DRA driver",
		},
		"dra version": {
			&registerapi.PluginInfo{Type: "DRAPlugin", Name: "a", SupportedVersions: []string{"v9"}},
			"none of the services",
		},
		"device": {
			&registerapi.PluginInfo{Type: "DevicePlugin", Name: "cpu", SupportedVersions: []string{"v1beta1"}},
			"extended resource",
		},
		"ours": {
			&registerapi.PluginInfo{Type: "DevicePlugin", Name: "mykubernetes.io/a", SupportedVersions: []string{"v1beta1"}},
			"extended resource",
		},
		"device version": {
			&registerapi.PluginInfo{Type: "DevicePlugin", Name: "a.example/b", SupportedVersions: []string{"v2"}},
			"manager version, v1beta1, is not among",
		},
		"endpoint": {
			&registerapi.PluginInfo{Type: "CSIPlugin", Name: "a", Endpoint: "run/a", SupportedVersions: []string{"1.0.0"}},
			"absolute path of a unix socket",
		},
		"upwards": {
			&registerapi.PluginInfo{Type: "CSIPlugin", Name: "a", Endpoint: "/run/../a", SupportedVersions: []string{"1.0.0"}},
			"absolute path of a unix socket",
		},
	} {
		_, err := plugin(file{path: "/x.sock"}, c.info)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500):
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	for _, p := range []*registerapi.PluginInfo{
		{Type: "CSIPlugin", Name: "a", Endpoint: "//x.sock", SupportedVersions: []string{"1.0.0"}},
		{Type: "DRAPlugin", Name: "gpu.example.com", SupportedVersions: []string{"v1.DRAPlugin"}},
		{Type: "DevicePlugin", Name: "vendor.example/gpu", SupportedVersions: []string{"v1beta1"}},
	} {
		if got, err := plugin(file{path: "/x.sock"}, p); err != nil || got.Endpoint != "/x.sock" {
			t.Errorf("%v: %+v, %v", p, got, err)
		}
	}
}

func TestARefusedPluginHearsWhy(t *testing.T) {
	dir, b := start(t, nil, nil)
	bad := csi("a", "2.0.0")
	serve(t, filepath.Join(dir, "bad.sock"), bad)
	if told := <-bad.told; told.GetPluginRegistered() || !strings.Contains(told.GetError(), "plugin validation failed") {
		t.Errorf("it hears %v", told)
	}
	rival := csi("b")
	first := csi("b")
	serve(t, filepath.Join(dir, "b1.sock"), first)
	b.until(t, "the first", has("CSIPlugin.b"))
	<-first.told // one that couldn't be told would lose the name
	serve(t, filepath.Join(dir, "b2.sock"), rival)
	if told := <-rival.told; told.GetPluginRegistered() || !strings.Contains(told.GetError(), "registered already") {
		t.Errorf("the second of a name hears %v", told)
	}
	if got := b.all()["CSIPlugin.b"].Socket; filepath.Base(got) != "b1.sock" {
		t.Errorf("%s has the name", got)
	}
}

func TestAPluginThatCannotBeToldIsNotRegistered(t *testing.T) {
	dir, b := start(t, nil, nil)
	deaf := csi("deaf")
	deaf.deaf = true
	serve(t, filepath.Join(dir, "deaf.sock"), deaf)
	b.until(t, "it came", has("CSIPlugin.deaf"))
	b.until(t, "it went", func(all map[string]topic.Plugin) bool { return len(all) == 0 })
}

// What is wrong in the directory keeps no good plugin from being registered.
func TestHostileDirectory(t *testing.T) {
	log := make(lines, 1<<14)
	dir, b := start(t, nil, log)
	for i := range 1000 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, fmt.Sprintf("%d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // nobody listens on the socket
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			_ = listener.Close()
			continue
		}
		t.Cleanup(func() { _ = listener.Close() }) // nobody answers
	}
	huge := csi("huge", strings.Repeat("1", maxAnswer))
	serve(t, filepath.Join(dir, "huge.sock"), huge)
	hangs := csi("hangs")
	hangs.hang = true
	serve(t, filepath.Join(dir, "hangs.sock"), hangs)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600),
		os.Symlink("/run", filepath.Join(dir, "link")),
		os.MkdirAll(filepath.Join(dir, "below", "deeper"), 0o750),
	); err != nil {
		t.Fatal(err)
	}
	hidden := csi("hidden")
	serve(t, filepath.Join(dir, ".hidden.sock"), hidden)
	good := csi("good")
	serve(t, filepath.Join(dir, "below", "deeper", "good.sock"), good)
	b.until(t, "the good one", has("CSIPlugin.good"))
	if all := b.all(); len(all) != 1 {
		t.Errorf("published are %v", slices.Sorted(maps.Keys(all)))
	}
	limit := time.After(time.Minute)
	for file, big := 0, 0; file == 0 || big == 0 || len(log) > 0; {
		select {
		case line := <-log:
			file += strings.Count(line, "file.sock")
			big += strings.Count(line, "larger than max")
		case <-limit:
			t.Fatal("not all is spoken of")
		}
		if file > 1 || big > 1 {
			t.Fatalf("the file is spoken of %d times, the huge answer %d times", file, big)
		}
	}
}

// A restart of the daemon takes no driver away that is there, and those that have gone meanwhile.
func TestWhatAnEarlierProcessPublished(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "plugins_registry")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	d := csi("hangs")
	d.hang = true
	serve(t, filepath.Join(dir, "d.sock"), d)
	found, err := scan(dir)
	if err != nil || len(found.sockets) != 1 {
		t.Fatal(found, err)
	}
	known := topic.Plugin{Type: topic.CSIPlugin, Name: "hangs", PluginEndpoint: topic.PluginEndpoint{
		Endpoint: "/run/hangs.sock", Socket: found.sockets[0].path, Instance: found.sockets[0].instance,
		Versions: []string{"1.0.0"}, Since: time.Now(),
	}}
	gone := known
	gone.Name, gone.Socket = "gone", filepath.Join(dir, "gone.sock")
	_, b := begin(t, root, map[string]topic.Plugin{"CSIPlugin.hangs": known, "CSIPlugin.gone": gone}, nil)
	b.until(t, "the one that is there", func(all map[string]topic.Plugin) bool { return len(all) == 1 })
	if got := b.all()["CSIPlugin.hangs"]; !got.Since.Equal(known.Since) {
		t.Errorf("%+v", got)
	}
}

// Two DRA drivers of one name are one plugin with two endpoints, the newest first.
func TestUpdatedDriver(t *testing.T) {
	dir, b := start(t, nil, nil)
	dra := func(socket string) *fake {
		return &fake{info: &registerapi.PluginInfo{
			Type: "DRAPlugin", Name: "g", Endpoint: socket, SupportedVersions: draServices,
		}}
	}
	serve(t, filepath.Join(dir, "1.sock"), dra("/1"))
	b.until(t, "the first", has("DRAPlugin.g"))
	serve(t, filepath.Join(dir, "2.sock"), dra("/2"))
	b.until(t, "both", func(all map[string]topic.Plugin) bool {
		p := all["DRAPlugin.g"]
		return p.Endpoint == "/2" && len(p.Others) == 1 && p.Others[0].Endpoint == "/1"
	})
	if err := os.Remove(filepath.Join(dir, "2.sock")); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the first alone", func(all map[string]topic.Plugin) bool {
		p := all["DRAPlugin.g"]
		return p.Endpoint == "/1" && len(p.Others) == 0
	})
}
