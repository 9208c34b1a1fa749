package server

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cliflag "k8s.io/component-base/cli/flag"

	"kubelot.dev/services/api/internal/cert"
	"kubelot.dev/services/api/internal/state"
)

// getCertificate is how crypto/tls asks for the serving certificate.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// tlsConfig is what the HTTPS port is served with; stop ends what keeps the certificate.
func (s *Service) tlsConfig(ctx context.Context,
	client kubernetes.Interface,
) (config *tls.Config, stop func(), err error) {
	k := s.env.Config.Kubelet
	config = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	if config.MinVersion, err = cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		return nil, nil, fmt.Errorf("tlsMinVersion: %w", err)
	}
	if config.CipherSuites, err = cliflag.TLSCipherSuites(k.TLSCipherSuites); err != nil {
		return nil, nil, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	for _, curve := range k.TLSCurvePreferences {
		config.CurvePreferences = append(config.CurvePreferences, tls.CurveID(curve))
	}
	config.GetCertificate, stop, err = s.certificate(ctx, client)
	if err == nil {
		err = s.metrics.certificate(config.GetCertificate)
	}
	return config, stop, err
}

func (s *Service) certificate(ctx context.Context, client kubernetes.Interface) (getCertificate, func(), error) {
	var files *cert.Files
	var err error
	c := s.env.Config
	certFile, keyFile := c.Kubelet.TLSCertFile, c.Kubelet.TLSPrivateKeyFile
	switch {
	case c.Kubelet.ServerTLSBootstrap && client != nil:
		signed, err := cert.NewSigned(cert.Request{
			Node: c.NodeName, Dir: c.CertDir, CertFile: certFile, KeyFile: keyFile, Metrics: s.env.Metrics,
			Log: s.env.Log,
			Addresses: func() []corev1.NodeAddress {
				// Without an answer nothing is asked for; it is tried again.
				addresses, _ := ask(ctx, s, (*state.State).Addresses)
				return addresses
			},
		}, client)
		if err != nil {
			return nil, nil, err
		}
		signed.Start()
		return signed.Get, signed.Stop, nil
	case certFile != "" || keyFile != "":
		files, err = cert.NewFiles(certFile, keyFile, s.env.Log)
	default:
		files, err = cert.SelfSigned(c.CertDir, c.NodeName, s.env.Log)
	}
	if err != nil {
		return nil, nil, err
	}
	return files.Get, func() {}, nil
}
