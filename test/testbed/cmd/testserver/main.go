// Command testserver is what the tests probe: HTTP on 8080, HTTPS on 8443 and the gRPC health service on 9090, healthy
// while the file /tmp/healthy is there.
//
// HTTP paths: /healthz; /asks-for?header=X&value=Y is healthy for requests with that header (Host and User-Agent
// count too); /redirect?to=URL; /big has an endless body; /hang never answers.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func healthy() bool {
	_, err := os.Stat("/tmp/healthy")
	return err == nil
}

func main() {
	failed := make(chan error)
	go func() { failed <- serveGRPC() }()
	go func() { failed <- serveHTTPS() }()
	go func() { failed <- http.ListenAndServe(":8080", paths()) }()
	log.Fatal(<-failed)
}

func paths() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, ok bool) {
		if !ok {
			http.Error(w, "a secret that no Event may tell", http.StatusServiceUnavailable)
		}
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, healthy()) })
	mux.HandleFunc("/asks-for", func(w http.ResponseWriter, r *http.Request) {
		name, value := r.FormValue("header"), r.Header.Get(r.FormValue("header"))
		if name == "Host" {
			value = r.Host
		}
		answer(w, value == r.FormValue("value"))
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("to"), http.StatusFound)
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 1<<10))
		}
	})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return mux
}

// serveHTTPS has a certificate that nobody can verify.
func serveHTTPS() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	server := http.Server{
		Addr: ":8443", Handler: paths(),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}},
	}
	return server.ListenAndServeTLS("", "")
}

func serveGRPC() error {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: 9090})
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	health.RegisterHealthServer(server, healthServer{})
	return server.Serve(listener)
}

type healthServer struct {
	health.UnimplementedHealthServer
}

// Check knows the services "" and "app"; others are unknown.
func (healthServer) Check(_ context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	switch {
	case r.GetService() != "" && r.GetService() != "app":
		return nil, status.Error(codes.NotFound, "unknown service")
	case healthy():
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	default:
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	}
}
