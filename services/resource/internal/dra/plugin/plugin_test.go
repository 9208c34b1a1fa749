package plugin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/dra/claims"
	"kubelot.dev/services/resource/internal/dra/dratest"
	"kubelot.dev/services/resource/internal/dra/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner is the goroutine that drivers belong to.
type owner struct {
	*loop.Loop
	t       *testing.T
	ctx     context.Context
	drivers *Drivers
	arrived []string
	reports map[string][]health.Report
	// codes are of calls; Observe is called by other goroutines.
	mu    sync.Mutex
	codes []string
}

// start runs an owner until the test ends.
func start(t *testing.T) *owner {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &owner{Loop: loop.New(nil), t: t, ctx: ctx, reports: map[string][]health.Report{}}
	o.drivers = New(Ports{
		Owner: o.Loop, Dial: Unix, Log: slog.New(slog.DiscardHandler),
		Observe: func(driver, method, code string, _ time.Duration) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.codes = append(o.codes, driver+" "+method+" "+code)
		},
		Arrived: func(driver string) { o.arrived = append(o.arrived, driver) },
		Health:  func(driver string, list []health.Report) { o.reports[driver] = list },
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				o.drivers.Close()
				return
			case change := <-o.Changes():
				change()
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended; o.Wait() })
	return o
}

// do runs f in the owner's goroutine.
func (o *owner) do(f func()) {
	o.t.Helper()
	if _, err := loop.Ask(o.ctx, o.Loop, func() bool { f(); return true }); err != nil {
		o.t.Fatal(err)
	}
}

// until waits until holds, which is asked in the owner's goroutine.
func (o *owner) until(what string, holds func() bool) {
	o.t.Helper()
	limit := time.Now().Add(2 * time.Minute)
	for ok := false; !ok; {
		o.do(func() { ok = holds() })
		if !ok && time.Now().After(limit) {
			o.t.Fatalf("%s: not within 2 minutes", what)
		}
		if !ok {
			time.Sleep(time.Millisecond)
		}
	}
}

// call calls the driver about the claim named one.
func (o *owner) call(driver, call string) (claims.Answers, error) {
	o.t.Helper()
	var c *Client
	o.do(func() { c = o.drivers.Acquire(driver) })
	if c == nil {
		o.t.Fatalf("driver %s isn't registered", driver)
	}
	defer o.do(func() { o.drivers.Release(c) })
	return c.Call(o.ctx, call, []Question{{types.NamespacedName{Namespace: "ns", Name: "one"}, "u1"}})
}

// serve serves a driver on a unix socket in dir.
func serve(t *testing.T, socket string, o dratest.Options) *dratest.Driver {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := dratest.Serve(l, o)
	t.Cleanup(d.Stop)
	return d
}

func at(socket string, versions ...string) topic.PluginEndpoint {
	if versions == nil {
		versions = []string{"v1.DRAPlugin"}
	}
	return topic.PluginEndpoint{Endpoint: socket, Instance: "1", Versions: versions}
}

func registered(first topic.PluginEndpoint, others ...topic.PluginEndpoint) map[string]topic.Plugin {
	return map[string]topic.Plugin{
		"DRAPlugin.d": {Type: topic.DRAPlugin, Name: "d", PluginEndpoint: first, Others: others},
		"CSIPlugin.d": {Type: topic.CSIPlugin, Name: "d", PluginEndpoint: first},
	}
}

func (o *owner) set(plugins map[string]topic.Plugin) {
	o.t.Helper()
	o.do(func() { o.drivers.Set(o.ctx, plugins) })
}

func (o *owner) connected(want bool) {
	o.t.Helper()
	o.until("connected", func() bool { return o.drivers.Connected()["d"] == want })
}

func TestCalls(t *testing.T) {
	for _, beta := range []bool{false, true} {
		o := start(t)
		socket := filepath.Join(t.TempDir(), "s")
		d := serve(t, socket, dratest.Options{Beta: beta})
		versions := []string{"v9.DRAPlugin", drav1.DRAPluginService, drav1beta1.DRAPluginService}
		if beta {
			versions = []string{drav1beta1.DRAPluginService, drav1.DRAPluginService} // its own order counts
		}
		o.set(registered(at(socket, versions...)))
		answers, err := o.call("d", claims.CallPrepare)
		want := claims.Answers{"u1": {Devices: []claims.Device{{
			Pool: "pool", Name: "dev-one", Requests: []string{"req"}, CDI: []string{"test/dev=one"},
		}}}}
		if err != nil || !reflect.DeepEqual(answers, want) {
			t.Errorf("beta %v: %+v, %v", beta, answers, err)
		}
		answers, err = o.call("d", claims.CallUnprepare)
		if err != nil || !reflect.DeepEqual(answers, claims.Answers{"u1": {}}) {
			t.Errorf("beta %v: %+v, %v", beta, answers, err)
		}
		if calls := d.Calls(); !slices.Equal(calls, []string{"prepare one", "unprepare one"}) {
			t.Errorf("beta %v: calls %q", beta, calls)
		}
		o.mu.Lock()
		if len(o.codes) != 2 || !strings.HasSuffix(o.codes[0], "DRAPlugin/NodePrepareResources OK") {
			t.Errorf("observed %q", o.codes)
		}
		o.mu.Unlock()
	}
}

func TestHostileAnswers(t *testing.T) {
	o := start(t)
	socket := filepath.Join(t.TempDir(), "s")
	d := serve(t, socket, dratest.Options{})
	o.set(registered(at(socket)))
	device := func(change func(*drav1.Device)) func(*drav1.NodePrepareResourcesResponse) {
		return func(r *drav1.NodePrepareResourcesResponse) { change(r.GetClaims()["u1"].GetDevices()[0]) }
	}
	for name, c := range map[string]struct {
		change func(*drav1.NodePrepareResourcesResponse)
		want   string
	}{
		"control":  {device(func(d *drav1.Device) { d.CdiDeviceIds = []string{"a\nb"} }), `"a\nb" of a device`},
		"empty":    {device(func(d *drav1.Device) { d.CdiDeviceIds = []string{""} }), "an empty CDI device"},
		"long":     {device(func(d *drav1.Device) { d.PoolName = strings.Repeat("x", maxName+1) }), "can't be a name"},
		"requests": {device(func(d *drav1.Device) { d.RequestNames = make([]string, maxNames+1) }), "too many"},
		"share":    {device(func(d *drav1.Device) { id := "\x00"; d.ShareId = &id }), "can't be a name"},
		"error":    {func(r *drav1.NodePrepareResourcesResponse) { r.Claims["u1"].Error = "a\nb\x1b[1m" }, "a b [1m"},
		"error too": {func(r *drav1.NodePrepareResourcesResponse) {
			r.Claims["u1"].Error = strings.Repeat("e", 1<<20)
		}, "e..."},
		"devices": {func(r *drav1.NodePrepareResourcesResponse) {
			for range maxDevices {
				r.Claims["u1"].Devices = append(r.Claims["u1"].Devices, &drav1.Device{})
			}
		}, "too many"},
	} {
		d.Set(dratest.Fault{Change: c.change})
		answers, err := o.call("d", claims.CallPrepare)
		a := answers["u1"]
		if err != nil || !strings.Contains(a.Error, c.want) || len(a.Error) > maxError+100 || len(a.Devices) > 0 {
			t.Errorf("%s: %.300v, %v; want %s", name, a, err, c.want)
		}
	}
	d.Set(dratest.Fault{Change: func(r *drav1.NodePrepareResourcesResponse) {
		r.Claims["u1"].Devices[0].CdiDeviceIds = []string{strings.Repeat("x", maxAnswer)}
	}})
	if _, err := o.call("d", claims.CallPrepare); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a huge answer: %.300v", err)
	}
	d.Set(dratest.Fault{Err: status.Error(codes.Internal, "a\nb"+strings.Repeat("x", 1<<16))})
	_, err := o.call("d", claims.CallUnprepare)
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > maxError+100 {
		t.Errorf("%.300v", err)
	}
}

// The cause of a broken call is said, also that of the owner's end.
func TestBrokenCalls(t *testing.T) {
	o := start(t)
	socket := filepath.Join(t.TempDir(), "s")
	d := serve(t, socket, dratest.Options{})
	o.set(registered(at(socket)))
	entered := make(chan struct{}, 1)
	d.Set(dratest.Fault{Hang: true, Before: func(string) { entered <- struct{}{} }})
	var c *Client
	o.do(func() { c = o.drivers.Acquire("d") })
	ctx, cancel := context.WithCancelCause(o.ctx)
	ended := make(chan error)
	go func() {
		_, err := c.Call(ctx, claims.CallPrepare, nil)
		ended <- err
	}()
	<-entered
	// It is registered no longer: the call goes on.
	o.set(nil)
	select {
	case err := <-ended:
		t.Errorf("the call has ended with its registration: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel(errors.New("the daemon stops"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the daemon stops") {
		t.Errorf("%v", err)
	}
	o.do(func() { o.drivers.Release(c) })
	if _, err := c.Call(o.ctx, claims.CallPrepare, nil); err == nil {
		t.Error("the connection is left open")
	}
}

func TestConnections(t *testing.T) {
	o := start(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	o.set(registered(at(socket)))
	o.do(func() {
		if !o.drivers.Registered("d") || o.drivers.Registered("e") || !slices.Equal(o.arrived, []string{"d"}) {
			t.Errorf("arrived %q", o.arrived)
		}
	})
	if _, err := o.call("d", claims.CallPrepare); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody answers: %v", err)
	}
	d := serve(t, socket, dratest.Options{})
	o.connected(true)
	o.do(func() {
		if !slices.Equal(o.arrived, []string{"d", "d"}) {
			t.Errorf("arrived %q", o.arrived)
		}
	})
	d.Stop()
	o.connected(false)
	serve(t, socket, dratest.Options{})
	o.connected(true)
	o.set(nil)
	o.do(func() {
		if o.drivers.Registered("d") || len(o.drivers.Connected()) != 0 || o.drivers.Acquire("d") != nil {
			t.Error("it is still there")
		}
	})
}

// While a driver is being updated the newest plugin that answers is called.
func TestUpdate(t *testing.T) {
	o := start(t)
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	first := serve(t, older, dratest.Options{})
	o.set(registered(at(older)))
	o.connected(true)
	o.set(registered(at(newer), at(older)))
	if _, err := o.call("d", claims.CallPrepare); err != nil || len(first.Calls()) != 1 {
		t.Errorf("the older isn't called: %v", err)
	}
	second := serve(t, newer, dratest.Options{})
	o.until("both", func() bool { return o.drivers.clients["d"][0].connected })
	if _, err := o.call("d", claims.CallPrepare); err != nil || len(second.Calls()) != 1 || len(first.Calls()) != 0 {
		t.Errorf("the newer isn't called: %v", err)
	}
	// It registers again: that is another connection.
	var before *Client
	o.do(func() { before = o.drivers.clients["d"][0] })
	again := at(newer)
	again.Instance = "2"
	o.set(registered(again, at(older)))
	o.do(func() {
		if list := o.drivers.clients["d"]; len(list) != 2 || list[0] == before || !before.retired || list[1].retired {
			t.Error("a plugin that has registered again keeps its connection, or the other one lost its")
		}
	})
}

func TestReports(t *testing.T) {
	o := start(t)
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	first := serve(t, older, dratest.Options{Health: true})
	serve(t, filepath.Join(dir, "3"), dratest.Options{})
	plugins := registered(at(older))
	plugins["DRAPlugin.silent"] = topic.Plugin{
		Type: topic.DRAPlugin, Name: "silent", PluginEndpoint: at(filepath.Join(dir, "3")),
	}
	o.set(plugins)
	first.Report("x healthy", "y unhealthy too hot")
	is := func(want ...health.Report) {
		t.Helper()
		o.until("reports", func() bool { return slices.Equal(o.reports["d"], want) })
	}
	x := health.Report{Key: health.Key{Pool: "pool", Device: "dev-x"}, Status: "Healthy"}
	is(x, health.Report{Key: health.Key{Pool: "pool", Device: "dev-y"}, Status: "Unhealthy", Message: "too hot"})
	// Once its successor reports, the older one isn't believed any more.
	second := serve(t, newer, dratest.Options{Health: true})
	o.set(registered(at(newer), at(older)))
	second.Report("x healthy")
	is(x)
	o.until("connected", func() bool { return o.drivers.clients["d"][0].connected })
	o.do(func() {
		list := o.drivers.clients["d"]
		if o.drivers.speaks(list[1]) || !o.drivers.speaks(list[0]) {
			t.Error("the older one is believed")
		}
	})
	o.do(func() {
		if o.reports["silent"] != nil {
			t.Error("a driver without the service has reported")
		}
	})
}

func TestServices(t *testing.T) {
	if _, err := newClient("d", at("/s", "v1alpha4.Node"), Unix, nil); err == nil ||
		!strings.Contains(err.Error(), "v1beta1.DRAPlugin") {
		t.Errorf("%v", err)
	}
	o := start(t)
	o.set(registered(at("/s", "v9")))
	o.do(func() {
		if o.drivers.Registered("d") || len(o.arrived) > 0 {
			t.Error("a driver that can't be spoken to is there")
		}
	})
}
