package csidriver

import (
	"context"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar serves the registration as node-driver-registrar does: it ends when the node agent refuses the driver.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	cfg     Config
	refused chan error
}

// RegistrationSocket is the socket by which the driver registers.
func (c Config) RegistrationSocket() string { return filepath.Join(c.Registry, c.Name+"-reg.sock") }

// register serves the registration until ctx ends or the driver is refused. Its calls are logged and go wrong as the
// driver's do.
func (d *Driver) register(ctx context.Context) error {
	r := &registrar{cfg: d.cfg, refused: make(chan error, 1)}
	listener, err := listen(ctx, d.cfg.RegistrationSocket())
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	registerapi.RegisterRegistrationServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Stop()
	select {
	case err = <-served:
	case err = <-r.refused:
	case <-ctx.Done():
	}
	return err
}

func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: r.cfg.Name, Endpoint: r.cfg.Socket, SupportedVersions: []string{version},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- fmt.Errorf("the node agent refuses the driver: %s", s.GetError()):
		default:
		}
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
