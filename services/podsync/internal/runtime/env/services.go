package env

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service whose variables every pod gets: the API server's, in the default namespace.
const apiService = "kubernetes"

// serviceVars gives the variables of the Services that the container may know: those of its namespace where
// enableServiceLinks allows, and always the API server's.
//
// Source: Kubernetes documentation "Service", Environment variables; PodSpec.enableServiceLinks.
func serviceVars(ctx context.Context, src Sources, in Input) (map[string]string, error) {
	vars := map[string]string{}
	if src == nil {
		return vars, nil
	}
	asking := ctx
	if in.Static { // it takes what is known, and waits for nothing
		var cancel context.CancelFunc
		asking, cancel = context.WithCancel(ctx)
		cancel()
	}
	byName := map[string]*corev1.Service{}
	if err := addServices(asking, src, metav1.NamespaceDefault, byName, func(s *corev1.Service) bool {
		return s.Name == apiService
	}); err != nil {
		return vars, unlessStatic(ctx, in, err)
	}
	if in.Pod.Spec.EnableServiceLinks == nil || *in.Pod.Spec.EnableServiceLinks {
		if err := addServices(asking, src, in.Pod.Namespace, byName, func(*corev1.Service) bool { return true }); err != nil {
			return vars, unlessStatic(ctx, in, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		addVars(vars, byName[name])
	}
	return vars, nil
}

// unlessStatic lets static pods start without Services: the API server itself may be one of them.
func unlessStatic(ctx context.Context, in Input, err error) error {
	if in.Static && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("services have not yet been read at least once, cannot construct envvars: %w", err)
}

func addServices(ctx context.Context, src Sources, namespace string, to map[string]*corev1.Service,
	want func(*corev1.Service) bool,
) error {
	services, err := src.Services(ctx, namespace)
	if err != nil {
		return err
	}
	for _, s := range services {
		headless := s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone
		if !headless && len(s.Spec.Ports) > 0 && want(s) {
			to[s.Name] = s
		}
	}
	return nil
}

// addVars adds the variables of one Service: host and ports, and the links as Docker once named them.
func addVars(vars map[string]string, s *corev1.Service) {
	prefix := varName(s.Name)
	ip := s.Spec.ClusterIP
	vars[prefix+"_SERVICE_HOST"] = ip
	vars[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			vars[prefix+"_SERVICE_PORT_"+varName(p.Name)] = port
		}
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		lower := strings.ToLower(protocol)
		url := lower + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			vars[prefix+"_PORT"] = url
		}
		link := prefix + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		vars[link] = url
		vars[link+"_PROTO"] = lower
		vars[link+"_PORT"] = port
		vars[link+"_ADDR"] = ip
	}
}

func varName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
