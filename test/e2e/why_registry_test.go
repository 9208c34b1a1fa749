package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// troubled is a registry on loopback, each of whose repositories has a trouble of its own.
func troubled(t *testing.T) (addr string) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	addr = strings.TrimPrefix(server.URL, "http://")
	answer := func(path string, code int, kind, body string, headers ...string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body) // net/http leaves it out of the answer to HEAD
		})
	}
	refusal := func(name string, code int, word string, headers ...string) {
		answer("/v2/"+name+"/app/manifests/1", code, "application/json",
			`{"errors":[{"code":"`+word+`","message":"no"}]}`, headers...)
	}
	served := func(name, kind, manifest string) {
		for _, tag := range []string{"1", digest([]byte(manifest))} {
			answer("/v2/"+name+"/app/manifests/"+tag, 200, kind, manifest, "Docker-Content-Digest", digest([]byte(manifest)))
		}
	}
	// image has a layer, of which what is given is sent.
	image := func(name, layer, given string) {
		config := `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["` + digest([]byte(layer)) +
			`"]},"name":"` + name + `"}`
		served(name, manifestType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":`+
			`"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
			`"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
			manifestType, digest([]byte(config)), len(config), layerType, digest([]byte(layer)), len(layer)))
		answer("/v2/"+name+"/app/blobs/"+digest([]byte(config)), 200, "application/octet-stream", config)
		answer("/v2/"+name+"/app/blobs/"+digest([]byte(layer)), 200, "application/octet-stream", given)
	}
	answer("/v2/{$}", 200, "application/json", "{}")
	refusal("limit", http.StatusTooManyRequests, "TOOMANYREQUESTS")
	refusal("broken", http.StatusInternalServerError, "UNKNOWN")
	refusal("forbidden", http.StatusForbidden, "DENIED")
	refusal("denied", http.StatusUnauthorized, "UNAUTHORIZED", "WWW-Authenticate",
		`Bearer realm="http://`+addr+`/token",service="test",scope="repository:denied/app:pull",error="insufficient_scope"`)
	answer("/token", 200, "application/json", `{"token":"of-nobody"}`)
	served("machine", indexType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,`+
		`"size":2,"platform":{"architecture":"s390x","os":"linux"}}]}`, indexType, manifestType, digest([]byte("{}"))))
	image("exchanged", strings.Repeat("a", 2048), strings.Repeat("b", 2048))
	image("torn", strings.Repeat("no tar ", 300), strings.Repeat("no tar ", 300))
	answer("/v2/portal/app/manifests/1", 200, "text/html", "<html>Please log in to the guests' network.</html>")
	mux.HandleFunc("/v2/cut/app/manifests/1", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return addr
}

// Registries whose answers are no image.
func TestWhyRegistryAnswers(t *testing.T) {
	t.Parallel()
	addr := troubled(t)
	if err := bed.CRI.UseRegistry(addr, false); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	of := func(name string) string { return container(`image: "`+addr+"/"+name+`/app:1"`, "") }
	explained(t, ns, []stuck{
		{"limit", of("limit"), []string{
			"container app can't start: the registry " + addr + " lets this node pull nothing more for now (rate limit)",
			"-> pull with an account: kubectl create secret docker-registry pull -n $NS",
		}},
		{"broken", of("broken"), []string{"container app can't start: the registry " + addr + " fails itself"}},
		{"forbidden", of("forbidden"), []string{
			"the registry " + addr + " wants a login for the image " + addr + "/forbidden/app:1 that this pod doesn't have",
		}},
		{"denied", of("denied"), []string{
			"the image " + addr + "/denied/app:1 doesn't exist, or the registry " + addr + " doesn't let this pod have it",
		}},
		{"machine", of("machine"), []string{"/machine/app:1 isn't made for this node's kind of machine", "uname -m"}},
		{"exchanged", of("exchanged"), []string{
			"what the registry " + addr + " delivers of the image " + addr + "/exchanged/app:1 is damaged",
			"-> push the image again",
		}},
		{"torn", of("torn"), []string{"delivers of the image " + addr + "/torn/app:1 is damaged"}},
		{"cut", of("cut"), []string{"the registry " + addr + " doesn't answer in time, or breaks off"}},
		{"portal", of("portal"), []string{
			"what answers for the registry " + addr + " sends a page (",
		}},
		{"volume", container("volumeMounts: [{name: v, mountPath: /v}]",
			`  volumes: [{name: v, image: {reference: "`+addr+`/no/such:7"}}]`+"\n"), []string{
			"container app can't start: the image " + addr + "/no/such:7 doesn't exist in the registry " + addr,
		}},
	})
}

// secured is a registry on the node's address that speaks TLS with the certificate, or none; change may be nil.
func secured(t *testing.T, certificate *tls.Certificate, change func(*tls.Config)) (addr string) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(bed.Bed.Gateway.String())})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if certificate == nil {
		server.Start()
	} else {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
		if change != nil {
			change(server.TLS)
		}
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	addr = listener.Addr().String()
	askByHTTPS(t, addr)
	return addr
}

// askByHTTPS makes containerd ask the host itself, and not the mirror that has all other images.
func askByHTTPS(t *testing.T, host string) {
	t.Helper()
	file := bed.Bed.Path("registries", host, "hosts.toml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("server = \"https://"+host+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificate is signed by itself.
func certificate(t *testing.T, until time.Time, addresses ...net.IP) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until, IPAddresses: addresses,
		DNSNames: []string{"registry.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Registries that the node doesn't come through to.
func TestWhyRegistryConnections(t *testing.T) {
	t.Parallel()
	own, soon := net.ParseIP(bed.Bed.Gateway.String()), time.Now().Add(time.Hour)
	stranger := secured(t, certificate(t, soon, own), nil)
	expired := secured(t, certificate(t, soon.Add(-24*time.Hour), own), nil)
	other := secured(t, certificate(t, soon, net.IPv4(192, 0, 2, 200)), nil)
	nameless := secured(t, certificate(t, soon), nil)
	old := secured(t, certificate(t, soon, own), func(c *tls.Config) {
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 // which no client takes any more
	})
	plain := secured(t, nil, nil)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: own})
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	_ = listener.Close()
	const nowhere, unnamed = "255.255.255.255:5000", "registry.invalid" // neither can ever be
	for _, host := range []string{closed, nowhere, unnamed} {
		askByHTTPS(t, host)
	}
	ns := bed.Namespace(t)
	of := func(host string) string { return container(`image: "`+host+`/app:1"`, "") }
	advice := "/etc/containerd/certs.d/" + plain
	if bed.CRIO(t) {
		advice = "/etc/containers/registries.conf"
	}
	explained(t, ns, []stuck{
		{"stranger", of(stranger), []string{"this node doesn't trust the certificate of the registry " + stranger}},
		{"expired", of(expired), []string{
			"the certificate of the registry " + expired + " has expired, or this node's clock is wrong",
		}},
		{"other", of(other), []string{
			"the certificate of the registry " + other + " is for 192.0.2.200, not for " + own.String(),
		}},
		{"nameless", of(nameless), []string{"the certificate of the registry " + nameless + " isn't for " + own.String()}},
		{"old", of(old), []string{"this node and the registry " + old + " agree on no secure connection: protocol version"}},
		{"plain", of(plain), []string{
			"the registry " + plain + " speaks plain HTTP, and this node asks it by HTTPS", advice,
		}},
		{"closed", of(closed), []string{"nothing listens at " + closed + ", where the registry " + closed + " should be"}},
		{"nowhere", of(nowhere), []string{"this node has no way to " + nowhere + ", where the registry " + nowhere + " is"}},
		{"unnamed", of(unnamed), []string{
			"this node finds no address of registry.invalid (DNS), where its image registry.invalid/app:1 should come from",
		}},
	})
}
