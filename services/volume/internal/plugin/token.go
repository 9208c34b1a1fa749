package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/volume/internal/atomicwriter"
	"kubelot.dev/services/volume/internal/payload"
)

const (
	// defaultExpiry is the API's default for expirationSeconds.
	defaultExpiry = int64(3600)
	// maxAge is the age at which a token is replaced however long it would be valid.
	maxAge = 24 * time.Hour
	// jitter spreads the requests of pods that started together.
	jitter = 10 * time.Second
	// retryToken is when a token is asked for again after the API server refused, while the old one is valid; no token is
	// replaced sooner.
	retryToken = 30 * time.Second
)

// token is the file of a service-account token bound to the pod. The one on disk is kept until it is
// due: a restart of this daemon asks for no new tokens.
func (o Objects) token(ctx context.Context, r Request, s *corev1.ServiceAccountTokenProjection) (collected, error) {
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	name := r.Pod.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	old, have := readToken(r, s)
	if have && now().Before(old.due()) {
		return o.tokenFile(r, s, old.text, old.due()), nil
	}
	answer, err := Ask(ctx, PodUnknown, func(ctx context.Context) (*authenticationv1.TokenRequest, error) {
		return o.Tokens.CreateToken(ctx, r.Pod.Namespace, name, tokenRequest(r.Pod, s))
	})
	switch {
	case err == nil:
	case have && now().Before(old.expires):
		file := o.tokenFile(r, s, old.text, now().Add(retryToken))
		file.warning = fmt.Sprintf("the token of service account %q is due and could not be replaced, "+
			"it is valid until %s: %v",
			name, old.expires.Format(time.RFC3339), err)
		return file, nil
	default:
		return collected{}, fmt.Errorf("failed to fetch token of service account %q: %w", name, err)
	}
	fresh := issued{text: answer.Status.Token, expires: answer.Status.ExpirationTimestamp.Time}
	fresh.from = fresh.expires.Add(-time.Duration(expiry(s, answer)) * time.Second)
	due := fresh.due().Add(-time.Duration(rand.Int64N(int64(jitter))))
	if earliest := now().Add(retryToken); due.Before(earliest) {
		due = earliest // this node's clock is ahead of the API server's
	}
	return o.tokenFile(r, s, fresh.text, due), nil
}

// PodUnknown distinguishes a refusal for the pod from one for the service account.
func PodUnknown(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return apierrors.IsForbidden(err) ||
		(apierrors.IsNotFound(err) && details != nil && strings.HasPrefix(details.Kind, "pod"))
}

func (o Objects) tokenFile(r Request, s *corev1.ServiceAccountTokenProjection, text string, due time.Time) collected {
	return collected{
		files: atomicwriter.Payload{s.Path: {
			Data: []byte(text), Mode: payload.TokenMode(r.Pod, r.Volume.Projected.DefaultMode), UID: payload.RunAsUser(r.Pod),
		}},
		refreshAt: due,
	}
}

func tokenRequest(pod *corev1.Pod, s *corev1.ServiceAccountTokenProjection) *authenticationv1.TokenRequest {
	seconds := defaultExpiry
	if s.ExpirationSeconds != nil {
		seconds = *s.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID,
		},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	return request
}

// expiry is for how many seconds the token was issued: the server may have shortened or extended what was asked for.
func expiry(s *corev1.ServiceAccountTokenProjection, answer *authenticationv1.TokenRequest) int64 {
	switch {
	case answer.Spec.ExpirationSeconds != nil:
		return *answer.Spec.ExpirationSeconds
	case s.ExpirationSeconds != nil:
		return *s.ExpirationSeconds
	}
	return defaultExpiry
}

// issued is a token and its life.
type issued struct {
	text          string
	from, expires time.Time
}

// due is when to replace the token: after 80 % of its life or 24 hours.
func (t issued) due() time.Time {
	due := t.from.Add(t.expires.Sub(t.from) / 5 * 4)
	if limit := t.from.Add(maxAge); limit.Before(due) {
		return limit
	}
	return due
}

// claims are what a token says of itself. It was written by this daemon into a directory that only root
// can write to, so its signature isn't checked.
type claims struct {
	IssuedAt   int64     `json:"iat"`
	Expires    int64     `json:"exp"`
	Audience   audiences `json:"aud"`
	Kubernetes struct {
		Pod struct {
			UID types.UID `json:"uid"`
		} `json:"pod"`
		// WarnAfter is the end of life that was asked for, where the API server extends it.
		WarnAfter int64 `json:"warnafter"`
	} `json:"kubernetes.io"`
}

// audiences is a string or a list of strings, as RFC 7519 has it.
type audiences []string

func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// readToken is the token on disk, if it is one of this pod for this audience.
func readToken(r Request, s *corev1.ServiceAccountTokenProjection) (issued, bool) {
	data, err := atomicwriter.Read(r.Dir, s.Path)
	if err != nil {
		return issued{}, false
	}
	c, ok := parseToken(string(data))
	if !ok || c.Kubernetes.Pod.UID != r.Pod.UID || (s.Audience != "" && !slices.Contains(c.Audience, s.Audience)) {
		return issued{}, false
	}
	t := issued{text: string(data), from: time.Unix(c.IssuedAt, 0), expires: time.Unix(c.Expires, 0)}
	if c.Kubernetes.WarnAfter > 0 {
		t.expires = time.Unix(c.Kubernetes.WarnAfter, 0)
	}
	return t, true
}

func parseToken(text string) (claims, bool) {
	var c claims
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return c, false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &c) != nil {
		return c, false
	}
	return c, c.IssuedAt > 0 && c.Expires > c.IssuedAt
}
