package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"kubelot.dev/services/volume/internal/atomicwriter"
	"kubelot.dev/services/volume/internal/payload"
)

// Source answers with objects of one type, from memory where they are watched.
type Source[T any] interface {
	// Get returns the object; apierrors.IsNotFound recognizes one that doesn't exist.
	Get(ctx context.Context, key types.NamespacedName) (*T, error)
}

// Tokens makes tokens for service accounts.
type Tokens interface {
	CreateToken(ctx context.Context, namespace, serviceAccount string,
		r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Objects is what volumes with files are made from.
type Objects struct {
	ConfigMaps Source[corev1.ConfigMap]
	Secrets    Source[corev1.Secret]
	Tokens     Tokens
	// Kernel is the running one's release; empty means one that can map the IDs of every filesystem.
	Kernel string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// collected is the content of a volume.
type collected struct {
	files     atomicwriter.Payload
	refreshAt time.Time
	warning   string
}

// collector gathers the content of a volume.
type collector func(ctx context.Context, r Request) (collected, error)

func (o Objects) configMap(ctx context.Context, r Request) (collected, error) {
	s := r.Volume.ConfigMap
	cm, err := fetch(ctx, o.ConfigMaps, "configmap", r.named(s.Name), isTrue(s.Optional))
	if err != nil {
		return collected{}, err
	}
	files, err := payload.ConfigMap(s.Items, cm, s.DefaultMode, isTrue(s.Optional))
	return collected{files: files}, err
}

func (o Objects) secret(ctx context.Context, r Request) (collected, error) {
	s := r.Volume.Secret
	secret, err := fetch(ctx, o.Secrets, "secret", r.named(s.SecretName), isTrue(s.Optional))
	if err != nil {
		return collected{}, err
	}
	files, err := payload.Secret(s.Items, secret, s.DefaultMode, isTrue(s.Optional))
	return collected{files: files}, err
}

func (o Objects) downwardAPI(_ context.Context, r Request) (collected, error) {
	s := r.Volume.DownwardAPI
	files, err := payload.Downward(s.Items, r.Pod, r.Allocatable, s.DefaultMode)
	return collected{files: files}, err
}

// projected merges its sources; a later one wins where two have a file of the same path.
func (o Objects) projected(ctx context.Context, r Request) (collected, error) {
	all := collected{files: atomicwriter.Payload{}}
	var errs []error
	for i := range r.Volume.Projected.Sources {
		part, err := o.part(ctx, r, &r.Volume.Projected.Sources[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		maps.Copy(all.files, part.files)
		if !part.refreshAt.IsZero() && (all.refreshAt.IsZero() || part.refreshAt.Before(all.refreshAt)) {
			all.refreshAt = part.refreshAt
		}
		if part.warning != "" {
			all.warning = part.warning
		}
	}
	return all, utilerrors.NewAggregate(errs)
}

func (o Objects) part(ctx context.Context, r Request, s *corev1.VolumeProjection) (collected, error) {
	mode := r.Volume.Projected.DefaultMode
	switch {
	case s.ConfigMap != nil:
		cm, err := fetch(ctx, o.ConfigMaps, "configmap", r.named(s.ConfigMap.Name), isTrue(s.ConfigMap.Optional))
		if err != nil {
			return collected{}, err
		}
		files, err := payload.ConfigMap(s.ConfigMap.Items, cm, mode, isTrue(s.ConfigMap.Optional))
		return collected{files: files}, err
	case s.Secret != nil:
		secret, err := fetch(ctx, o.Secrets, "secret", r.named(s.Secret.Name), isTrue(s.Secret.Optional))
		if err != nil {
			return collected{}, err
		}
		files, err := payload.Secret(s.Secret.Items, secret, mode, isTrue(s.Secret.Optional))
		return collected{files: files}, err
	case s.DownwardAPI != nil:
		files, err := payload.Downward(s.DownwardAPI.Items, r.Pod, r.Allocatable, mode)
		return collected{files: files}, err
	case s.ServiceAccountToken != nil:
		return o.token(ctx, r, s.ServiceAccountToken)
	case s.ClusterTrustBundle != nil:
		return collected{}, fmt.Errorf("projected source clusterTrustBundle: %w", ErrUnsupported)
	case s.PodCertificate != nil:
		return collected{}, fmt.Errorf("projected source podCertificate: %w", ErrUnsupported)
	}
	return collected{}, errors.New("a projected source names none of the known kinds")
}

// fetch returns the object, or nil where it doesn't exist and needn't.
func fetch[T any](ctx context.Context, from Source[T], kind string, key types.NamespacedName,
	optional bool,
) (*T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout,
		fmt.Errorf("the API server has not answered for %s", answerTimeout))
	defer cancel()
	object, err := from.Get(ctx, key)
	switch {
	case apierrors.IsNotFound(err) && optional:
		return nil, nil
	case apierrors.IsNotFound(err):
		// In the words that tools and people know from the kubelet.
		return nil, fmt.Errorf("%s %q not found", kind, key.Name)
	case err != nil:
		return nil, fmt.Errorf("%s %q: %w", kind, key.Name, err)
	}
	return object, nil
}

// named is the key of an object in the pod's namespace.
func (r Request) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Pod.Namespace, Name: name}
}

func isTrue(b *bool) bool { return b != nil && *b }
