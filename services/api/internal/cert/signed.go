package cert

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

// prefix begins the names of the files that the kubelet keeps such certificates in.
const prefix = "kubelet-server"

// Request says what certificate the cluster is asked for.
type Request struct {
	Node string
	// Dir is where certificates are kept (kubelet-server-current.pem); CertFile and KeyFile are used until the first is
	// signed.
	Dir, CertFile, KeyFile string
	// Addresses are the node's; as long as there is no IP address among them nothing is asked for.
	Addresses func() []corev1.NodeAddress
	Metrics   prometheus.Registerer
	Log       *slog.Logger
}

// Signed is a certificate that the cluster signs. Start and Stop belong to it.
type Signed struct{ certificate.Manager }

// NewSigned makes it; it starts nothing.
func NewSigned(r Request, client kubernetes.Interface) (*Signed, error) {
	if err := putAside(r.Dir, r.Log); err != nil {
		return nil, err
	}
	store, err := certificate.NewFileStore(prefix, r.Dir, r.Dir, r.CertFile, r.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("store of serving certificates in %s: %w", r.Dir, err)
	}
	errs := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_server_expiration_renew_errors", Help: "Counter of certificate renewal errors.",
	})
	age := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubelet_certificate_manager_server_rotation_seconds",
		Help:    "How many seconds the previous certificate lived before it was rotated.",
		Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
	})
	if err := cmp.Or(r.Metrics.Register(errs), r.Metrics.Register(age)); err != nil {
		return nil, err
	}
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:             func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		GetTemplate:             func() *x509.CertificateRequest { return template(r.Node, r.Addresses()) },
		SignerName:              certificatesv1.KubeletServingSignerName,
		GetUsages:               certificate.DefaultKubeletServingGetUsages,
		CertificateStore:        store,
		CertificateRotation:     age,
		CertificateRenewFailure: errs,
	})
	if err != nil {
		return nil, fmt.Errorf("manager of the serving certificate: %w", err)
	}
	return &Signed{manager}, nil
}

// putAside renames the stored certificate if it isn't one with its key, as after a fault of the disk: the manager would
// fail with it at each start. Without it, it asks for another one.
func putAside(dir string, log *slog.Logger) error {
	current, unusable := filepath.Join(dir, prefix+"-current.pem"), filepath.Join(dir, prefix+"-unusable.pem")
	pem, err := os.ReadFile(current)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the stored serving certificate: %w", err)
	}
	if _, err = tls.X509KeyPair(pem, pem); err == nil {
		return nil
	}
	log.Warn("the stored serving certificate isn't usable, requesting another one", "file", current, "error", err)
	if err := os.Rename(current, unusable); err != nil {
		return fmt.Errorf("put the unusable serving certificate aside: %w", err)
	}
	return nil
}

// errUnsigned is what a client sees before the cluster has signed.
var errUnsigned = errors.New("the cluster has not signed the serving certificate yet: approve the node's " +
	"CertificateSigningRequest (kubectl certificate approve)")

// Get is a tls.Config's GetCertificate.
func (s *Signed) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.Current(); c != nil {
		return c, nil
	}
	return nil, errUnsigned
}

// template is what the certificate is to say; nil while the node has no IP address.
func template(node string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	names, ips := map[string]bool{}, map[string]bool{}
	for _, a := range addresses {
		dns := a.Type == corev1.NodeExternalDNS || a.Type == corev1.NodeInternalDNS
		switch {
		case a.Address == "":
		case net.ParseIP(a.Address) != nil && !dns:
			ips[a.Address] = true
		case dns || a.Type == corev1.NodeHostName:
			names[a.Address] = true
		}
	}
	if len(ips) == 0 {
		return nil
	}
	request := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: slices.Sorted(maps.Keys(names)),
	}
	for _, ip := range slices.Sorted(maps.Keys(ips)) {
		request.IPAddresses = append(request.IPAddresses, net.ParseIP(ip))
	}
	return request
}
