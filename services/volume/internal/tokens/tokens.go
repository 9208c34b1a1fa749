// Package tokens keeps the tokens of service accounts that CSI drivers were given, in memory alone: the API server
// isn't asked for new ones each time that a driver is told of a pod.
package tokens

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// maxTokenAge is the age at which a token is replaced however long it would be valid, the kubelet's.
const maxTokenAge = 24 * time.Hour

// Kept are the tokens that drivers were given.
type Kept struct {
	mu sync.Mutex
	// byDir has those of each volume's directory below a pod's, which ends with the volume.
	byDir map[string]map[tokenRequest]token
}

// New keeps none yet.
func New() *Kept { return &Kept{byDir: map[string]map[tokenRequest]token{}} }

// tokenRequest is what a CSIDriver object asks for.
type tokenRequest struct {
	account, audience string
	seconds           int64
}

type token struct {
	status authenticationv1.TokenRequestStatus
	due    time.Time
}

// Use is the use of a volume by a pod; Dir is the pod's directory of it.
type Use struct {
	Dir string
	Pod *corev1.Pod
}

// For are the tokens of the pod's service account for which the driver's object asks, as the driver wants them; none if
// it asks for none. A token that is due and can't be replaced is given while it is valid.
func (k *Kept) For(ctx context.Context, api plugin.Tokens, u Use, object *storagev1.CSIDriver,
) (map[string]string, error) {
	if object == nil || len(object.Spec.TokenRequests) == 0 {
		return nil, nil
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, wanted := range object.Spec.TokenRequests {
		status, err := k.one(ctx, api, u, wanted)
		if err != nil {
			return nil, err
		}
		all[wanted.Audience] = status
	}
	data, err := json.Marshal(all)
	return map[string]string{driver.KeyTokens: string(data)}, err
}

func (k *Kept) one(ctx context.Context, api plugin.Tokens, u Use, wanted storagev1.TokenRequest,
) (authenticationv1.TokenRequestStatus, error) {
	key := tokenRequest{account: cmp.Or(u.Pod.Spec.ServiceAccountName, "default"), audience: wanted.Audience}
	if wanted.ExpirationSeconds != nil {
		key.seconds = *wanted.ExpirationSeconds
	}
	asked := time.Now()
	old := k.get(u.Dir, key)
	if asked.Before(old.due) {
		return old.status, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: wanted.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: u.Pod.Name, UID: u.Pod.UID,
		},
	}}
	if wanted.Audience != "" {
		request.Spec.Audiences = []string{wanted.Audience}
	}
	answer, err := plugin.Ask(ctx, plugin.PodUnknown, func(ctx context.Context) (*authenticationv1.TokenRequest, error) {
		return api.CreateToken(ctx, u.Pod.Namespace, key.account, request)
	})
	switch {
	case err == nil:
	case asked.Before(old.status.ExpirationTimestamp.Time):
		return old.status, nil
	default:
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("get the token of service account %q for the driver: %w",
			key.account, err)
	}
	life := min(answer.Status.ExpirationTimestamp.Sub(asked)/5*4, maxTokenAge)
	k.set(u.Dir, key, token{answer.Status, asked.Add(life)})
	return answer.Status, nil
}

func (k *Kept) get(dir string, key tokenRequest) token {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byDir[dir][key]
}

func (k *Kept) set(dir string, key tokenRequest, t token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byDir[dir] == nil {
		k.byDir[dir] = map[tokenRequest]token{}
	}
	k.byDir[dir][key] = t
}

// Forget drops the tokens of a volume that its pod loses.
func (k *Kept) Forget(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byDir, filepath.Clean(dir))
}
