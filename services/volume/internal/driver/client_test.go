package driver

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"kubelot.dev/bus/topic"
)

func TestRedact(t *testing.T) {
	request := &csiapi.NodePublishVolumeRequest{
		Secrets:       map[string]string{"user": "me", "password": "s3cret", "longer": "s3cret and more"},
		VolumeContext: map[string]string{KeyTokens: `{"a":{"token":"t0ken","expirationTimestamp":"2026-01-02T03:04:05Z"}}`},
	}
	for text, want := range map[string]string{
		"login me:s3cret failed": "login me:*** failed",
		"s3cret and more":        "***",
		"bearer t0ken":           "bearer ***",
		"got " + request.GetVolumeContext()[KeyTokens]: "got ***",
		"plain": "plain",
	} {
		if got := redact(text, request); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
	if got := redact("as it is", &csiapi.NodeGetInfoRequest{}); got != "as it is" {
		t.Errorf("it became %q", got)
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\nb\x1b[31m"); got != "a b [31m" {
		t.Errorf("%q", got)
	}
	if got := Line(strings.Repeat("é", maxError)); len(got) > maxError+3 || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-10:])
	}
}

// Only what changes something for volumes wakes those who wait.
func TestChanges(t *testing.T) {
	d := New()
	defer d.Close()
	woken := func() bool {
		select {
		case <-d.Changes():
			return true
		default:
			return false
		}
	}
	d.Synced()
	woken()
	at := topic.PluginEndpoint{Endpoint: "/s"}
	csi := map[string]topic.Plugin{"k": {Type: topic.CSIPlugin, Name: "d", PluginEndpoint: at}}
	d.Registered(csi)
	if !woken() {
		t.Error("a driver came, and nobody was told")
	}
	d.Registered(csi)
	csi["other"] = topic.Plugin{Type: topic.DevicePlugin, Name: "x/y", PluginEndpoint: at}
	d.Registered(csi)
	d.Registered(nil)
	if woken() {
		t.Error("somebody was told of what changes nothing")
	}
}

// able is a driver that stages volumes or doesn't, and counts how often it is asked.
type able struct {
	csiapi.UnimplementedNodeServer
	stages bool
	asked  int
	// more are capabilities that mean nothing.
	more int
}

func (a *able) NodeGetCapabilities(context.Context, *csiapi.NodeGetCapabilitiesRequest,
) (*csiapi.NodeGetCapabilitiesResponse, error) {
	a.asked++
	answer := &csiapi.NodeGetCapabilitiesResponse{Capabilities: make([]*csiapi.NodeServiceCapability, a.more)}
	for i := range answer.Capabilities {
		answer.Capabilities[i] = &csiapi.NodeServiceCapability{}
	}
	if a.stages {
		answer.Capabilities = []*csiapi.NodeServiceCapability{{
			Type: &csiapi.NodeServiceCapability_Rpc{Rpc: &csiapi.NodeServiceCapability_RPC{
				Type: csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
			}},
		}}
	}
	return answer, nil
}

// run serves the driver until the function is called.
func (a *able) run(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csiapi.RegisterNodeServer(server, a)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	var once sync.Once
	stop = func() { once.Do(func() { server.Stop(); served.Wait() }) }
	t.Cleanup(stop)
	return stop
}

// A driver is asked once what it can do, and again when it was started again, though nothing was asked of it meanwhile
// and its registration is as it was.
func TestCapabilitiesOfADriverThatWasStartedAgain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	first := &able{stages: true}
	stop := first.run(t, socket)
	d := New()
	defer d.Close()
	d.Registered(map[string]topic.Plugin{"k": {
		Type: topic.CSIPlugin, Name: "d", PluginEndpoint: topic.PluginEndpoint{Endpoint: socket},
	}})
	c := d.Client("d")
	defer c.Release()
	for range 3 {
		if can, err := c.Capabilities(t.Context()); err != nil || !can.Stage {
			t.Fatalf("%+v, %v", can, err)
		}
	}
	stop()
	if first.asked != 1 {
		t.Errorf("it was asked %d times", first.asked)
	}
	for limit, failures := time.Now().Add(time.Minute), 0; failures < 2; time.Sleep(time.Millisecond) {
		if _, err := c.Capabilities(t.Context()); err != nil {
			failures++
		}
		if time.Now().After(limit) {
			t.Fatal("what the driver could do is taken for certain after its end")
		}
	}
	(&able{}).run(t, socket)
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		can, err := c.Capabilities(t.Context())
		if err == nil && can.Stage {
			t.Fatal("it still stages volumes, as the driver did before")
		}
		if err == nil {
			break // it fails as long as the connection is about to be made again
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
	if can := c.Known(); can == nil || can.Stage {
		t.Errorf("known is %+v", can)
	}
}

// What a driver can do has an end, and what means nothing is passed over.
func TestCapabilitiesWithoutEnd(t *testing.T) {
	for more, want := range map[int]string{
		maxCapabilities: "", maxCapabilities + 1: "the driver names 257 capabilities", maxAnswer: "larger than max",
	} {
		socket := filepath.Join(t.TempDir(), "s")
		(&able{more: more}).run(t, socket)
		c, err := dial(socket, New().watch("d"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Capabilities(t.Context())
		c.retire()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d capabilities: %v; want %q", more, err, want)
		}
	}
}
