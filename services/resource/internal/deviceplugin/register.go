package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var errAgain = errors.New("it has registered again meanwhile")

// registration is the service by which plugins register.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	server *Server
}

// registering is a call of Register.
type registering struct{ stop context.CancelCauseFunc }

// Register connects to the plugin. When it returns without an error, the plugin is the resource's.
func (r registration) Register(ctx context.Context, q *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	s := r.server
	err := s.checkRequest(q)
	if err == nil {
		err = s.register(ctx, q.GetResourceName(), filepath.Join(s.dir, q.GetEndpoint()))
	}
	if err != nil {
		s.ports.Log.Warn("device plugin can't be registered", "resource", line(q.GetResourceName()),
			"endpoint", line(q.GetEndpoint()), "error", err)
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}

// checkRequest judges a registration. The first two errors are the kubelet's.
func (s *Server) checkRequest(q *pluginapi.RegisterRequest) error {
	switch endpoint := q.GetEndpoint(); {
	case !slices.Contains(pluginapi.SupportedVersions[:], q.GetVersion()):
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q",
			line(q.GetVersion()), pluginapi.SupportedVersions)
	case !Extended(q.GetResourceName()):
		return fmt.Errorf("the ResourceName %q is invalid", line(q.GetResourceName()))
	case !filepath.IsLocal(endpoint) || filepath.Clean(endpoint) == socketName || filepath.Clean(endpoint) == ".":
		return fmt.Errorf("the endpoint %q must be the name of a socket in %s", line(endpoint), s.dir)
	}
	return nil
}

// Extended reports whether a name is an extended resource's: one of a vendor's domain that can have a quota. Domains
// that only end in Kubernetes' own, such as mykubernetes.io, are no vendor's, as in the kubelet.
func Extended(name string) bool {
	const quota = "requests."
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, quota) &&
		len(validation.IsQualifiedName(quota+name)) == 0
}

// register connects to the plugin and hands it to Run.
func (s *Server) register(ctx context.Context, resource, socket string) error {
	ctx, done, err := s.begin(ctx, resource)
	if err != nil {
		return err
	}
	defer done()
	s.ports.Metrics.registrations.WithLabelValues(resource).Inc()
	p, err := connect(ctx, resource, socket, s.limits)
	if err != nil {
		return err
	}
	return s.handOver(ctx, p)
}

// handOver gives the plugin to Run.
func (s *Server) handOver(ctx context.Context, p *plugin) error {
	if ctx.Err() == nil {
		select {
		case s.arrivals <- p:
			return nil
		case <-ctx.Done():
		}
	}
	p.close()
	return context.Cause(ctx)
}

// begin notes a registration. It ends an earlier one of the same resource, which may hang.
func (s *Server) begin(ctx context.Context, resource string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	own := &registering{cancel}
	done := func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.registering[resource] == own {
			delete(s.registering, resource)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := s.registering[resource]
	if earlier != nil {
		earlier.stop(errAgain)
	} else if s.plugins[resource] == nil && len(s.plugins)+len(s.registering) >= maxPlugins {
		cancel(nil)
		return nil, nil, status.Errorf(codes.ResourceExhausted, "there are %d device plugins, no more can register",
			maxPlugins)
	}
	s.registering[resource] = own
	return ctx, done, nil
}
