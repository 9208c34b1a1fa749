package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"kubelot.dev/services/resource/internal/deviceplugin/plugintest"
)

// registered has the plugin registered with one device.
func (b *bed) registered(p *plugintest.Plugin) {
	b.Helper()
	b.register(b.serve(p, "p.sock", plugintest.Device("a")))
	b.until(gpu + " a true []")
}

func TestCalls(t *testing.T) {
	b := start(t, nil)
	p := &plugintest.Plugin{
		Options: &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
		Prefer: func(q *pluginapi.ContainerPreferredAllocationRequest) *pluginapi.PreferredAllocationResponse {
			if len(q.GetAvailableDeviceIDs()) != 3 || q.GetMustIncludeDeviceIDs()[0] != "a" || q.GetAllocationSize() != 2 {
				t.Errorf("it is asked %v", q)
			}
			return &pluginapi.PreferredAllocationResponse{
				ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: []string{"a", "c"}}},
			}
		},
	}
	b.registered(p)
	if options, there := b.Options(gpu); !there || !options.PreStart || !options.Preferred {
		t.Errorf("its options are %v, %v", options, there)
	}
	preferred, err := b.Preferred(t.Context(), gpu, []string{"a", "b", "c"}, []string{"a"}, 2)
	if err != nil || !slices.Equal(preferred, []string{"a", "c"}) {
		t.Errorf("it prefers %v, %v", preferred, err)
	}
	data, err := b.Allocate(t.Context(), gpu, []string{"a", "c"})
	var answer pluginapi.ContainerAllocateResponse
	if err := errors.Join(err, proto.Unmarshal(data, &answer)); err != nil || answer.GetEnvs()["DEVICES"] != "a,c" {
		t.Errorf("it answers %v, %v", &answer, err)
	}
	if err := b.PreStart(t.Context(), gpu, []string{"a", "c"}); err != nil {
		t.Errorf("before the start: %v", err)
	}
	want := []string{
		"GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer a,c",
	}
	if got := p.Calls(); !slices.Equal(got, want) {
		t.Errorf("it is called %q", got)
	}
	if n := testutil.CollectAndCount(b.ports.Metrics.allocations); n != 1 {
		t.Errorf("%d resources have measured allocations", n)
	}
}

// A plugin isn't asked what it doesn't offer.
func TestCallsThatAreNotMade(t *testing.T) {
	b := start(t, nil)
	p := &plugintest.Plugin{}
	b.registered(p)
	preferred, err := b.Preferred(t.Context(), gpu, []string{"a"}, nil, 1)
	if err := errors.Join(err, b.PreStart(t.Context(), gpu, []string{"a"})); err != nil || preferred != nil {
		t.Error(preferred, err)
	}
	if got := p.Calls(); !slices.Equal(got, []string{"GetDevicePluginOptions", "ListAndWatch"}) {
		t.Errorf("it is called %q", got)
	}
	_, err = b.Preferred(t.Context(), nic, []string{"a"}, nil, 1)
	if start := b.PreStart(t.Context(), nic, []string{"a"}); !errors.Is(err, ErrAway) || !errors.Is(start, ErrAway) {
		t.Errorf("of a plugin that never was: %v, %v", err, start)
	}
	if _, there := b.Options(nic); there {
		t.Error("a plugin that never was is there")
	}
}

func TestAnswersThatCannotBeUsed(t *testing.T) {
	answer := func(c *pluginapi.ContainerAllocateResponse) *pluginapi.AllocateResponse {
		return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{c}}
	}
	for name, c := range map[string]struct {
		answer *pluginapi.AllocateResponse
		want   string
	}{
		"nothing": {&pluginapi.AllocateResponse{}, "no containers return in allocation response"},
		"large": {
			answer(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": strings.Repeat("x", maxAllocation)}}),
			"at most 1048576 can be kept",
		},
		"too large": {
			answer(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A": strings.Repeat("x", maxAnswer)}}),
			"larger than max",
		},
		"variable": {
			answer(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"A=": "x"}}),
			"can't be the name of an environment variable",
		},
		"mount": {
			answer(&pluginapi.ContainerAllocateResponse{Mounts: []*pluginapi.Mount{{ContainerPath: "/x"}}}),
			"lacks a path",
		},
		"permissions": {
			answer(&pluginapi.ContainerAllocateResponse{
				Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/x", HostPath: "/x", Permissions: "rwx"}},
			}),
			`with the permissions "rwx"`,
		},
		"CDI": {
			answer(&pluginapi.ContainerAllocateResponse{CdiDevices: []*pluginapi.CDIDevice{{}}}), "has no name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, nil)
			b.registered(&plugintest.Plugin{Answer: func([]string) *pluginapi.AllocateResponse { return c.answer }})
			data, err := b.Allocate(t.Context(), gpu, []string{"a"})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2*maxError || data != nil {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// What a plugin says of an error comes as the kubelet has it, on one line.
func TestCallsThatFail(t *testing.T) {
	b := start(t, nil)
	b.registered(&plugintest.Plugin{
		Options: &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
		Fault: func(_ context.Context, method string) error {
			if method == "GetDevicePluginOptions" {
				return nil
			}
			return status.Error(codes.Internal, "broken\n"+strings.Repeat("x", 2*maxError))
		},
	})
	_, allocate := b.Allocate(t.Context(), gpu, []string{"a"})
	_, preferred := b.Preferred(t.Context(), gpu, []string{"a"}, nil, 1)
	for want, err := range map[string]error{
		"rpc error: code = Internal desc = broken x":                                                           allocate,
		"device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = broken x": preferred,
		"device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = broken x": b.PreStart(
			t.Context(), gpu, []string{"a"}),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 2*maxError {
			t.Errorf("%v; want %q", err, want)
		}
		if errors.Is(err, ErrAway) || errors.Is(err, ErrSlow) {
			t.Errorf("%v is of another kind", err)
		}
	}
}

func TestCallsThatTakeTooLong(t *testing.T) {
	b := start(t, func(b *bed) {
		short := 20 * time.Millisecond
		b.limits.preferred, b.limits.allocate, b.limits.preStart = short, short, short
	})
	hangs := &plugintest.Plugin{
		Options: &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
		Fault: func(ctx context.Context, method string) error {
			if method == "GetDevicePluginOptions" {
				return nil
			}
			return hang("", nil)(ctx, method)
		},
	}
	b.registered(hangs)
	_, allocate := b.Allocate(t.Context(), gpu, []string{"a"})
	_, preferred := b.Preferred(t.Context(), gpu, []string{"a"}, nil, 1)
	for _, err := range []error{allocate, preferred, b.PreStart(t.Context(), gpu, []string{"a"})} {
		if !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), gpu+" has taken longer than 20ms") {
			t.Error(err)
		}
	}
	// It was slow, but it is there.
	hangs.List(plugintest.Device("b"))
	b.until(gpu + " b true []")
}

// What a plugin wants to be asked is known while it is away: only a container whose devices it prepares waits for it.
func TestPreStartWhileThePluginIsAway(t *testing.T) {
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprint(required), func(t *testing.T) {
			b := start(t, nil)
			p := &plugintest.Plugin{Options: &pluginapi.DevicePluginOptions{PreStartRequired: required}}
			b.registered(p)
			p.Stop()
			b.until(gpu + " away")
			if options, known := b.Options(gpu); !known || options.PreStart != required {
				t.Errorf("its options are %v, %v", options, known)
			}
			err := b.PreStart(t.Context(), gpu, []string{"a"})
			if errors.Is(err, ErrAway) != required || !required && err != nil {
				t.Errorf("before the start: %v", err)
			}
		})
	}
}

// One plugin hangs, another doesn't. The caller may give up.
func TestAPluginHangsAlone(t *testing.T) {
	b := start(t, nil)
	begun := make(chan struct{})
	b.registered(&plugintest.Plugin{Fault: hang("Allocate", begun)})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := b.Allocate(ctx, gpu, []string{"a"}); !errors.Is(err, enough) {
			t.Errorf("it ends with %v", err)
		}
	})
	<-begun
	b.register(b.serve(&plugintest.Plugin{Resource: nic}, "nic.sock", plugintest.Device("n")))
	b.until(nic + " n true []")
	if _, err := b.Allocate(t.Context(), nic, []string{"n"}); err != nil {
		t.Error(err)
	}
	cancel(enough)
	calling.Wait()
}

// A plugin that dies while it is asked is away: it has refused nothing.
func TestAPluginDiesInACall(t *testing.T) {
	b := start(t, nil)
	begun := make(chan struct{})
	p := &plugintest.Plugin{Fault: hang("Allocate", begun)}
	b.registered(p)
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := b.Allocate(t.Context(), gpu, []string{"a"}); !errors.Is(err, ErrAway) {
			t.Errorf("it ends with %v", err)
		}
	})
	<-begun
	p.Stop()
	b.until(gpu + " away")
	calling.Wait()
}
