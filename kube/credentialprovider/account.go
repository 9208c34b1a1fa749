package credentialprovider

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Accounts is the part of the client of the API server that providers with tokens need. A node may read the service
// accounts of its pods, not watch them.
type Accounts interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	CreateToken(ctx context.Context, namespace, name string,
		req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Account is a service account.
type Account struct{ UID, Namespace, Name string }

const (
	// maxTokenAge is the age at which a token is replaced however long it would be valid, the kubelet's.
	maxTokenAge = 24 * time.Hour
	// firstPause and lastPause are the pauses between requests that the API server refuses. Its authorizer and admission
	// may be behind the watch that told this node of the pod.
	firstPause = 15 * time.Millisecond
	lastPause  = 480 * time.Millisecond
)

// identity is what a provider is told of a pod's service account; the zero identity is of a pod that has none.
type identity struct {
	account     Account
	annotations map[string]string
	token       string
}

// tokenHash is what a token is known by again without being kept.
func (i *identity) tokenHash() string {
	if i.token == "" {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(i.token)))
}

// identities gives those of pods, for one provider.
type identities struct {
	tokenAttributes
	api Accounts // nil without an API server
	log *slog.Logger

	mu   sync.Mutex
	kept map[holder]kept
}

// holder is a pod with its service account.
type holder struct {
	pod             types.UID
	namespace, name string
}

// kept is an identity with its token, until the token ends. From due on there should be a new token.
type kept struct {
	identity
	due, end time.Time
}

// of gives the identity of the pod; none means that the provider isn't to be asked for this pod.
func (i *identities) of(ctx context.Context, pod *corev1.Pod) (id *identity, err error) {
	name := pod.Spec.ServiceAccountName
	switch {
	case name == "" && *i.RequireAccount:
		return nil, nil
	case name == "":
		return &identity{}, nil
	case i.api == nil:
		return nil, errors.New("the pod's service account can't be had: this node has no API server (standalone mode)")
	}
	h := holder{pod.UID, pod.Namespace, name}
	old := i.get(h)
	account, err := patiently(ctx, func() (*corev1.ServiceAccount, error) {
		return i.api.GetServiceAccount(ctx, pod.Namespace, name)
	})
	switch {
	case err == nil:
	case unanswered(err) && time.Now().Before(old.end):
		i.log.Warn("can't read the service account, taking what it was", "namespace", h.namespace, "service_account", name,
			"error", err)
		return &old.identity, nil
	default:
		return nil, fmt.Errorf("read service account %s/%s: %w", pod.Namespace, name, err)
	}
	id = &identity{account: Account{string(account.UID), pod.Namespace, name}, annotations: map[string]string{}}
	for _, key := range i.RequiredAnnotations {
		value, there := account.Annotations[key]
		if !there {
			return nil, nil // by the annotation workloads say that they want the provider
		}
		id.annotations[key] = value
	}
	for _, key := range i.OptionalAnnotations {
		if value, there := account.Annotations[key]; there {
			id.annotations[key] = value
		}
	}
	return id, i.setToken(ctx, pod, id, old)
}

// setToken gives the identity a token: the old one while that isn't due, or as long as there can't be a new one.
func (i *identities) setToken(ctx context.Context, pod *corev1.Pod, id *identity, old kept) error {
	asked := time.Now()
	k := kept{*id, old.due, old.end}
	k.token = old.token
	if old.account != id.account || !asked.Before(old.due) {
		answer, err := patiently(ctx, func() (*authenticationv1.TokenRequest, error) {
			return i.api.CreateToken(ctx, id.account.Namespace, id.account.Name, i.request(pod, id))
		})
		switch {
		case err == nil:
			k.token, k.end = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
			k.due = asked.Add(min(k.end.Sub(asked)/5*4, maxTokenAge))
		case old.account == id.account && asked.Before(old.end):
			i.log.Warn("can't get a new token, taking the one that is due", "namespace", id.account.Namespace,
				"service_account", id.account.Name, "error", err)
		default:
			return fmt.Errorf("get a token of service account %s/%s for audience %q: %w", id.account.Namespace,
				id.account.Name, i.Audience, err)
		}
	}
	id.token = k.token
	i.set(holder{pod.UID, id.account.Namespace, id.account.Name}, k)
	return nil
}

// request is for a token that ends with the pod, and that isn't for a later account of the same name.
func (i *identities) request(pod *corev1.Pod, id *identity) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(id.account.UID)},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{i.Audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
			},
		},
	}
}

func (i *identities) get(h holder) kept {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.kept[h]
}

// set keeps a token, and drops those that have ended.
func (i *identities) set(h holder, k kept) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	for h, k := range i.kept {
		if !now.Before(k.end) {
			delete(i.kept, h)
		}
	}
	if i.kept == nil {
		i.kept = map[holder]kept{}
	}
	i.kept[h] = k
}

// patiently asks the API server again where a refusal may pass by itself.
func patiently[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for delay := firstPause; ; delay *= 2 {
		answer, err := ask()
		if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) || delay > lastPause {
			return answer, err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answer, err
		}
	}
}

// unanswered reports failures that say nothing of the object: the server can't be reached, or is busy.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)
}
