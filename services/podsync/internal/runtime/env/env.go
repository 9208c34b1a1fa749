package env

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/expand"
	"kubelot.dev/kube/resourceref"
)

// Sources give the API objects that variables refer to. The errors of ConfigMap and Secret for a missing
// object satisfy apierrors.IsNotFound. A node without an API server passes nil Sources.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services lists the Services of one namespace, from a cache that has been filled once. An error
	// says that it hasn't.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// Input is what a container's environment follows from.
type Input struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	// Static is true for a pod from a manifest; it starts without waiting for the API server's Services.
	Static bool
	// PodIPs are the sandbox's addresses, primary first; on the host network the node's.
	PodIPs []string
	// HostIPs are the node's addresses, primary first.
	HostIPs []string
	// Allocatable is the node's allocatable resources: what resourceFieldRef gives for a limit that isn't set.
	Allocatable corev1.ResourceList
	// VolumePaths are the host paths of the pod's volumes by name; for fileKeyRef.
	VolumePaths map[string]string
}

// Resolve computes the environment: envFrom in its order, then env in its order, each overriding what was there,
// then the service variables whose names are still free. A value may refer by $(NAME) to variables
// before it. An error's text is the container's waiting message with the reason CreateContainerConfigError.
func Resolve(ctx context.Context, src Sources, in Input) ([]*runtimeapi.KeyValue, error) {
	services, err := serviceVars(ctx, src, in)
	if err != nil {
		return nil, err
	}
	r := resolver{
		src: src, in: in, vars: map[string]string{}, services: services,
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{},
	}
	for i := range in.Container.EnvFrom {
		if err := r.from(ctx, &in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range in.Container.Env {
		if err := r.set(ctx, &in.Container.Env[i]); err != nil {
			return nil, err
		}
	}
	return r.result()
}

// resolver is one run of Resolve.
type resolver struct {
	src      Sources
	in       Input
	vars     map[string]string
	services map[string]string
	// configMaps and secrets hold what was read, so that all variables of a container come from one version.
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// result puts the variables in order. A NUL byte would end the value, or the start of the container, in the kernel.
func (r *resolver) result() ([]*runtimeapi.KeyValue, error) {
	all := maps.Clone(r.services)
	maps.Copy(all, r.vars)
	out := make([]*runtimeapi.KeyValue, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.IndexByte(all[name], 0) >= 0 {
			return nil, fmt.Errorf("environment variable %s of container %s: the value holds a NUL byte, which no environment "+
				"can; remove it from its source", name, r.in.Container.Name)
		}
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(all[name])})
	}
	return out, nil
}

// from takes in all keys of a ConfigMap or Secret.
func (r *resolver) from(ctx context.Context, f *corev1.EnvFromSource) error {
	switch {
	case f.ConfigMapRef != nil:
		cm, err := r.configMap(ctx, f.ConfigMapRef.Name, isTrue(f.ConfigMapRef.Optional))
		if err != nil || cm == nil {
			return err
		}
		for key, value := range cm.Data {
			r.vars[f.Prefix+key] = value
		}
	case f.SecretRef != nil:
		secret, err := r.secret(ctx, f.SecretRef.Name, isTrue(f.SecretRef.Optional))
		if err != nil || secret == nil {
			return err
		}
		for key, value := range secret.Data {
			r.vars[f.Prefix+key] = string(value)
		}
	}
	return nil
}

// set computes one variable. An optional source that is missing leaves the variable as it was.
func (r *resolver) set(ctx context.Context, v *corev1.EnvVar) error {
	if v.Value != "" || v.ValueFrom == nil {
		r.vars[v.Name] = expand.References(v.Value, r.lookup)
		return nil
	}
	value, found, err := r.source(ctx, v.ValueFrom)
	if err != nil {
		return err
	}
	if found {
		r.vars[v.Name] = value
	}
	return nil
}

func (r *resolver) lookup(name string) (string, bool) {
	if value, ok := r.vars[name]; ok {
		return value, true
	}
	value, ok := r.services[name]
	return value, ok
}

// source reads a variable's source; not found means that an optional one is missing.
func (r *resolver) source(ctx context.Context, s *corev1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case s.FieldRef != nil:
		value, err = fieldValue(s.FieldRef, r.in)
	case s.ResourceFieldRef != nil:
		value, err = resourceref.Value(s.ResourceFieldRef, r.in.Pod, r.in.Container, r.in.Allocatable)
	case s.ConfigMapKeyRef != nil:
		return r.configMapKey(ctx, s.ConfigMapKeyRef)
	case s.SecretKeyRef != nil:
		return r.secretKey(ctx, s.SecretKeyRef)
	case s.FileKeyRef != nil:
		return fileKey(s.FileKeyRef, r.in)
	}
	return value, err == nil, err
}

func (r *resolver) configMapKey(ctx context.Context, ref *corev1.ConfigMapKeySelector) (string, bool, error) {
	cm, err := r.configMap(ctx, ref.Name, isTrue(ref.Optional))
	if err != nil || cm == nil {
		return "", false, err
	}
	value, ok := cm.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, r.in.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (r *resolver) secretKey(ctx context.Context, ref *corev1.SecretKeySelector) (string, bool, error) {
	secret, err := r.secret(ctx, ref.Name, isTrue(ref.Optional))
	if err != nil || secret == nil {
		return "", false, err
	}
	value, ok := secret.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, r.in.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

// configMap reads a ConfigMap once; nil without an error means that it's optional and missing.
func (r *resolver) configMap(ctx context.Context, name string, optional bool) (*corev1.ConfigMap, error) {
	if cm, ok := r.configMaps[name]; ok {
		return cm, nil
	}
	if r.src == nil {
		return nil, noAPIServer("configmap", r.in.Pod, name)
	}
	cm, err := r.src.ConfigMap(ctx, r.in.Pod.Namespace, name)
	if err != nil {
		return nil, missing("configmap", name, err, optional)
	}
	r.configMaps[name] = cm
	return cm, nil
}

// secret reads a Secret once; nil without an error means that it's optional and missing.
func (r *resolver) secret(ctx context.Context, name string, optional bool) (*corev1.Secret, error) {
	if s, ok := r.secrets[name]; ok {
		return s, nil
	}
	if r.src == nil {
		return nil, noAPIServer("secret", r.in.Pod, name)
	}
	s, err := r.src.Secret(ctx, r.in.Pod.Namespace, name)
	if err != nil {
		return nil, missing("secret", name, err, optional)
	}
	r.secrets[name] = s
	return s, nil
}

// missing gives the text that users know from the kubelet, whatever path the object was asked for by.
func missing(kind, name string, err error, optional bool) error {
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case optional:
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

func noAPIServer(kind string, pod *corev1.Pod, name string) error {
	return fmt.Errorf("couldn't get %s %s/%s: this node has no API server; give the value in the pod's manifest", kind,
		pod.Namespace, name)
}

func isTrue(b *bool) bool { return b != nil && *b }
