package podresources

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"kubelot.dev/daemon/sleep"
	"kubelot.dev/services/resource/internal/podresources/endpoint"
)

// Ports are what the API works with.
type Ports struct {
	Source  Source
	Metrics Metrics
	// Ended has pods that are over be shown too: the feature gate KubeletPodResourcesListUseActivePods is off.
	Ended bool
	// Door is where clients come in; nil for a socket that closes when the daemon sleeps.
	Door *sleep.Door
}

// Server is the API.
type Server struct {
	ports    Ports
	endpoint endpoint.Endpoint
}

// SocketOf is the path of the API's socket, below the kubelet's root directory.
func SocketOf(rootDir string) string { return filepath.Join(rootDir, "pod-resources", "kubelet.sock") }

// New makes the API of the kubelet's root directory. It starts nothing.
func New(rootDir string, ports Ports, log *slog.Logger) *Server {
	s := &Server{ports: ports}
	s.endpoint = endpoint.Endpoint{Path: SocketOf(rootDir), Register: s.register, Door: ports.Door, Log: log}
	return s
}

// Run serves the API until ctx ends. The error says why it can't be served.
func (s *Server) Run(ctx context.Context) error { return s.endpoint.Run(ctx) }

func (s *Server) register(r grpc.ServiceRegistrar) {
	v1.RegisterPodResourcesListerServer(r, &serverV1{Ports: s.ports})
	v1alpha1.RegisterPodResourcesListerServer(r, &serverAlpha{Ports: s.ports})
}

// serverV1 has the calls of v1.
type serverV1 struct {
	v1.UnimplementedPodResourcesListerServer
	Ports
}

// List shows all active pods, and the others where they are to be shown.
func (s *serverV1) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	pods, err := list(ctx, s.Ports, podAnswer)
	s.Metrics.count(versionV1, s.Metrics.list, err)
	if err != nil {
		return nil, err
	}
	return &v1.ListPodResourcesResponse{PodResources: pods}, nil
}

// Get shows one of the pods that List shows.
func (s *serverV1) Get(ctx context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	pod, err := get(ctx, s.Ports, r.GetPodNamespace(), r.GetPodName())
	s.Metrics.count(versionV1, s.Metrics.get, err)
	if err != nil {
		return nil, err
	}
	return &v1.GetPodResourcesResponse{PodResources: pod}, nil
}

// GetAllocatableResources shows what the node has for containers.
func (s *serverV1) GetAllocatableResources(ctx context.Context, _ *v1.AllocatableResourcesRequest,
) (*v1.AllocatableResourcesResponse, error) {
	has, err := s.Source.Allocatable(ctx)
	s.Metrics.count(versionV1, s.Metrics.allocatable, err)
	if err != nil {
		return nil, unknown(ctx, err)
	}
	return &v1.AllocatableResourcesResponse{
		Devices: devices(has.Devices), CpuIds: cpus(has.CPUs), Memory: memory(has.Memory),
	}, nil
}

// serverAlpha has the call of v1alpha1.
type serverAlpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	Ports
}

// List shows all active pods, and the others where they are to be shown.
func (s *serverAlpha) List(ctx context.Context, _ *v1alpha1.ListPodResourcesRequest,
) (*v1alpha1.ListPodResourcesResponse, error) {
	pods, err := list(ctx, s.Ports, alphaAnswer)
	s.Metrics.count(versionAlpha, s.Metrics.list, err)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.ListPodResourcesResponse{PodResources: pods}, nil
}

// list has an answer for each pod that is shown.
func list[A any](ctx context.Context, ports Ports, answer func(*Pod) *A) ([]*A, error) {
	all, err := ports.Source.Pods(ctx)
	if err != nil {
		return nil, unknown(ctx, err)
	}
	pods := shown(all, ports.Ended)
	answers := make([]*A, len(pods))
	for i, p := range pods {
		answers[i] = answer(p)
	}
	return answers, nil
}

func get(ctx context.Context, ports Ports, namespace, name string) (*v1.PodResources, error) {
	all, err := ports.Source.Pods(ctx)
	if err != nil {
		return nil, unknown(ctx, err)
	}
	if p := find(shown(all, false), namespace, name); p != nil {
		return podAnswer(p), nil
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", name, namespace)
}

// unknown is the error for a client whose question can't be answered yet.
func unknown(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Errorf(codes.Unavailable, "the node's resources aren't known yet, try again: %v", err)
}
