package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Config says what the driver is and what it can do.
type Config struct {
	Name, NodeID string
	// State is its directory. Socket is where it serves.
	State, Socket string
	// Registry is the kubelet's directory plugins_registry; empty where it doesn't register.
	Registry string
	// The capabilities that it may lack.
	NoStage, NoAttach, NoExpand, NoStats bool
	// MountGroup has the driver give files to the fsGroup.
	MountGroup bool
	// Segment is the topology of its node, a key and a value; empty for none.
	Segment [2]string
	// MaxVolumes is how many volumes the node may have; 0 means that it doesn't say. SetMaxVolumes changes it.
	MaxVolumes int64
}

const version = "1.0.0"

// Driver is the driver. One process runs one on a state directory.
type Driver struct {
	csiapi.UnimplementedIdentityServer
	csiapi.UnimplementedControllerServer
	csiapi.UnimplementedNodeServer
	cfg    Config
	mu     sync.Mutex // one call that changes something at a time
	log    *callLog
	faults faults
}

// New makes the driver and its state directory.
func New(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, faults: faults{dir: filepath.Join(cfg.State, "faults")}}
	for _, dir := range []string{d.faults.dir, d.volumes(), filepath.Dir(cfg.Socket)} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
	}
	log, err := openLog(CallLog(cfg.State))
	d.log = log
	return d, err
}

func (d *Driver) volumes() string { return filepath.Join(d.cfg.State, "volumes") }

// Run serves until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	listener, err := listen(ctx, d.cfg.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept), grpc.StatsHandler(connections{d.log}))
	csiapi.RegisterIdentityServer(server, d)
	csiapi.RegisterControllerServer(server, d)
	csiapi.RegisterNodeServer(server, d)
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	if d.cfg.Registry != "" {
		go func() { ended <- d.register(ctx) }()
	}
	defer server.Stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// listen makes the socket, in place of one that a process that died has left.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// intercept logs a call and lets go wrong what is to.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	method := filepath.Base(info.FullMethod)
	call := d.log.begin(method, request)
	of(ctx, method)
	stop := context.AfterFunc(ctx, func() { d.log.note(Call{ID: call.ID, Method: method, Gone: true}) })
	fault := d.faults.take(method)
	if fault.Hang {
		fault = d.faults.hang(ctx, method, fault)
	}
	answer, err := fault.around(ctx, func() (any, error) { return handle(ctx, request) })
	stop()
	d.log.end(call, err)
	return answer, err
}

// GetPluginInfo is CSI's.
func (d *Driver) GetPluginInfo(context.Context, *csiapi.GetPluginInfoRequest) (*csiapi.GetPluginInfoResponse, error) {
	return &csiapi.GetPluginInfoResponse{Name: d.cfg.Name, VendorVersion: version}, nil
}

// GetPluginCapabilities is CSI's.
func (d *Driver) GetPluginCapabilities(context.Context, *csiapi.GetPluginCapabilitiesRequest,
) (*csiapi.GetPluginCapabilitiesResponse, error) {
	var list []*csiapi.PluginCapability
	for _, t := range []csiapi.PluginCapability_Service_Type{
		csiapi.PluginCapability_Service_CONTROLLER_SERVICE,
		csiapi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		if t == csiapi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS && d.cfg.Segment[0] == "" {
			continue
		}
		list = append(list, &csiapi.PluginCapability{Type: &csiapi.PluginCapability_Service_{
			Service: &csiapi.PluginCapability_Service{Type: t},
		}})
	}
	if !d.cfg.NoExpand {
		list = append(list, &csiapi.PluginCapability{Type: &csiapi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csiapi.PluginCapability_VolumeExpansion{
				Type: csiapi.PluginCapability_VolumeExpansion_ONLINE,
			},
		}})
	}
	return &csiapi.GetPluginCapabilitiesResponse{Capabilities: list}, nil
}

// Probe is CSI's.
func (d *Driver) Probe(context.Context, *csiapi.ProbeRequest) (*csiapi.ProbeResponse, error) {
	return &csiapi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// Wait waits until the driver's socket can be dialed.
func Wait(ctx context.Context, socket string) error {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the driver: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
