package clientcert

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	certutil "k8s.io/client-go/util/cert"

	"kubelot.dev/bus/pause"
)

const (
	// signTimeout is how long a request is waited for, and callTimeout how long one call of the API server may take.
	// watchPause passes before a watch that ended is opened again.
	signTimeout = 15 * time.Minute
	callTimeout = 30 * time.Second
	watchPause  = time.Second
)

// Requests is what is needed of the API server's CertificateSigningRequests.
type Requests interface {
	Create(ctx context.Context, r *certificatesv1.CertificateSigningRequest,
		o metav1.CreateOptions) (*certificatesv1.CertificateSigningRequest, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (*certificatesv1.CertificateSigningRequest, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// refusal is a request that was denied, can't be signed, or was signed with a certificate of no use: the same one again
// would be pointless.
type refusal struct{ error }

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// build makes the CertificateSigningRequest of a node's client certificate. Its name follows from the key and from what
// is asked for, so that the same request is found again.
func build(node string, key crypto.Signer) (*certificatesv1.CertificateSigningRequest, error) {
	who := subject(node)
	text, err := certutil.MakeCSRFromTemplate(key, &x509.CertificateRequest{Subject: who})
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if _, ok := key.(*rsa.PrivateKey); ok {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	hash := sha512.New512_256()
	parts := [][]byte{public, []byte(who.CommonName), []byte(who.Organization[0])}
	for _, usage := range usages {
		parts = append(parts, []byte(usage))
	}
	encode := base64.RawURLEncoding
	for _, part := range parts {
		hash.Write([]byte(encode.EncodeToString(part) + "|"))
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + encode.EncodeToString(hash.Sum(nil))},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    text,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: usages,
		},
	}, nil
}

// submit creates the request, or finds the one that an earlier try has created.
func submit(ctx context.Context, api Requests,
	want *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := api.Create(ctx, want, metav1.CreateOptions{})
	if err == nil {
		return r, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create CertificateSigningRequest %s: %w", want.Name, err)
	}
	if r, err = api.Get(ctx, want.Name, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("read CertificateSigningRequest %s: %w", want.Name, err)
	}
	if r.Spec.SignerName != want.Spec.SignerName || !sameKey(r.Spec.Request, want.Spec.Request) {
		return nil, refusal{fmt.Errorf("CertificateSigningRequest %s exists and asks for something else", want.Name)}
	}
	return r, nil
}

func sameKey(a, b []byte) bool {
	one, errOne := parse(a)
	other, errOther := parse(b)
	return errOne == nil && errOther == nil && bytes.Equal(one.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo) &&
		bytes.Equal(one.RawSubject, other.RawSubject)
}

func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// issued waits for the request to be signed and returns the certificate.
func issued(ctx context.Context, api Requests, r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, signTimeout, fmt.Errorf("nobody has signed it within %s: approve it "+
		"with kubectl certificate approve %s", signTimeout, r.Name))
	defer cancel()
	for {
		cert, err := verdict(r)
		if cert != nil || err != nil {
			return cert, err
		}
		if r, err = next(ctx, api, r); err != nil {
			return nil, fmt.Errorf("wait for CertificateSigningRequest %s: %w", r.Name, err)
		}
	}
}

// next is the request's next state. Where the watch fails or ends it is read again after a pause; an error is final.
func next(ctx context.Context, api Requests,
	r *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	if w, err := api.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, r.Name).String(),
		ResourceVersion: r.ResourceVersion,
	}); err == nil {
		event := <-w.ResultChan()
		w.Stop()
		switch seen, ok := event.Object.(*certificatesv1.CertificateSigningRequest); {
		case ok && (event.Type == watch.Deleted || seen.UID != r.UID):
			return r, errors.New("it was deleted")
		case ok:
			return seen, nil
		}
	}
	if pause.For(ctx, watchPause); ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	now, err := api.Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != r.UID:
		return r, errors.New("it was deleted")
	case err != nil && ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, nil //nolint:nilerr // the API server may be away; the time-out ends it
	}
	return now, nil
}

// verdict is the certificate once there is one; a refusal ends the wait.
func verdict(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	approved := false
	for _, c := range r.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue && c.Status != "":
		case c.Type == certificatesv1.CertificateDenied:
			return nil, refusal{fmt.Errorf("CertificateSigningRequest %s was denied: %s: %s", r.Name, c.Reason, c.Message)}
		case c.Type == certificatesv1.CertificateFailed:
			return nil, refusal{fmt.Errorf("CertificateSigningRequest %s can't be signed: %s: %s", r.Name, c.Reason, c.Message)}
		case c.Type == certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if approved && len(r.Status.Certificate) > 0 {
		return r.Status.Certificate, nil
	}
	return nil, nil
}
