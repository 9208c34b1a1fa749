// Package clientcert is the node's identity at the API server: the client certificate that a bootstrap kubeconfig
// obtains (TLS bootstrap), and its renewal (rotateCertificates).
//
// # Writes
//
// In the certificate directory kubelet-client-<time>.pem, the link kubelet-client-current.pem to the one in use, and
// kubelet-client.key.tmp while a request is under way; the kubeconfig, where it is missing or its certificate has
// ended.
//
// # Guarantees
//
// The certificate in use is replaced at once and as a whole. A restart while a request waits for approval goes on
// with the same key and request. Whatever fails is tried again, without end.
//
// # Why not client-go's util/certificate
//
// It links the typed clients of the whole API, which would cost each daemon of the shared executable 0.9 MiB. It has no
// bootstrap, makes a new request at each try, and doesn't start with half a pair on disk. docs/adr/0023 has the
// measurements.
package clientcert

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/pause"
	"kubelot.dev/daemon/config"
)

const (
	// retryFirst and retryMax bound the pause after a failure; a request that was refused is repeated after refusedPause
	// only.
	retryFirst   = 2 * time.Second
	retryMax     = 32 * time.Second
	refusedPause = 5 * time.Minute
	// lookEvery is how often files are looked at that somebody else may bring.
	lookEvery = 10 * time.Second
	// renewFloor is the least time between two renewals, whatever the certificates say.
	renewFloor = time.Second
)

// Ports are what the manager needs of the daemon.
type Ports struct {
	// Dial makes a client of CertificateSigningRequests from a kubeconfig; certificate takes the place of its user, unless
	// empty. done closes the client.
	Dial func(kubeconfig, certificate string) (api Requests, done func(), err error)
	// Waiting says why there are no credentials yet; an empty text says that there are.
	Waiting func(text string)
	// Failed is called after a request for a certificate failed.
	Failed  func(err error)
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager obtains and renews the certificate. Its Run is the goroutine that owns the state.
type Manager struct {
	ports                           Ports
	node, kubeconfig, bootstrapFrom string
	rotate                          bool
	store                           store
	failures                        int
	// renewAt is when the certificate with that serial number must be renewed.
	renewAt time.Time
	serial  string
	// issued is when this process was given its last certificate.
	issued time.Time
	// renewSoon is for the certificate that came with the kubeconfig: it is replaced at once by one of the node's own.
	renewSoon bool
	end       atomic.Int64 // of the certificate in use, in seconds since 1970; 0 for none
	errors    prometheus.Counter
}

// New makes the manager; it starts nothing.
func New(c *config.Config, ports Ports) (*Manager, error) {
	m := &Manager{
		ports: ports, node: c.NodeName, kubeconfig: c.Kubeconfig, bootstrapFrom: c.BootstrapKubeconfig,
		rotate: c.Kubelet.RotateCertificates, store: store{c.CertDir},
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_certificate_manager_client_expiration_renew_errors", Help: "Counter of certificate renewal errors.",
		}),
	}
	if !m.rotate {
		return m, nil
	}
	ttl := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_client_ttl_seconds",
		Help: "Seconds until the client certificate ends, negative once it has; +Inf while there is none.",
	}, m.ttl)
	return m, errors.Join(ports.Metrics.Register(m.errors), ports.Metrics.Register(ttl))
}

func (m *Manager) ttl() float64 {
	end := m.end.Load()
	if end == 0 {
		return math.Inf(1)
	}
	return math.Trunc(time.Until(time.Unix(end, 0)).Seconds())
}

// Run works until ctx ends, or until nothing can ever be to be done.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		f, cert, key := m.look(time.Now())
		s := decide(f)
		if s.kind == finished {
			m.ports.Waiting("")
			return
		}
		rest, err := m.do(ctx, s, cert, key)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			rest = m.failed(err)
		} else {
			m.failures = 0
		}
		pause.For(ctx, rest)
	}
}

// look reads the files, and decides when a certificate that it sees for the first time must be renewed. cert and key
// are the kubeconfig's own.
func (m *Manager) look(now time.Time) (f facts, cert, key []byte) {
	f = facts{now: now, rotate: m.rotate, bootstrap: m.bootstrapFrom != ""}
	f.kubeconfig, cert, key = kubeconfigUser(m.kubeconfig, m.store.path(nameCurrent), now)
	pair, err := m.store.load()
	if err != nil {
		m.end.Store(0)
		if !errors.Is(err, fs.ErrNotExist) {
			m.ports.Log.Warn("can't use the stored client certificate, requesting another one", "error", err)
		}
		return f, cert, key
	}
	f.stored = pair.Leaf
	m.end.Store(pair.Leaf.NotAfter.Unix())
	if serial := pair.Leaf.SerialNumber.String(); serial != m.serial {
		m.serial, m.renewAt = serial, renewal(pair.Leaf, m.issued)
		if m.renewSoon {
			m.renewSoon, m.renewAt = false, now
		}
		m.ports.Log.Info("the node's client certificate is in use", "ends", pair.Leaf.NotAfter, "renewal", m.renewAt)
	}
	f.renewAt = m.renewAt
	return f, cert, key
}

// do does one step and returns how long to wait after it.
func (m *Manager) do(ctx context.Context, s step, cert, key []byte) (rest time.Duration, err error) {
	current := m.store.path(nameCurrent)
	switch s.kind {
	case wait:
		m.ports.Waiting("")
		// The clock may be set, and the files replaced by somebody else.
		return min(time.Until(s.at), time.Minute), nil
	case adopt:
		u, _, _ := kubeconfigUser(m.kubeconfig, current, time.Now())
		m.renewSoon = u.embedded
		return 0, m.store.put(cert, key, time.Now())
	case refer:
		return 0, writeKubeconfig(m.kubeconfig, m.bootstrapFrom, current)
	case ask:
		return renewFloor, m.ask(ctx, s.by)
	}
	m.ports.Waiting(fmt.Sprintf("there is no valid client certificate in %s or %s: give the node a new kubeconfig, or a "+
		"bootstrap kubeconfig with --bootstrap-kubeconfig", current, m.kubeconfig))
	return lookEvery, nil
}

// ask obtains a certificate and puts it into force.
func (m *Manager) ask(ctx context.Context, as by) error {
	from, certificate := m.kubeconfig, ""
	switch as {
	case asBootstrap:
		from = m.bootstrapFrom
	case asStored:
		certificate = m.store.path(nameCurrent)
	}
	if as != asStored {
		m.ports.Waiting(fmt.Sprintf("requesting a client certificate with %s %s", as, from))
	}
	api, done, err := m.ports.Dial(from, certificate)
	if err != nil {
		return fmt.Errorf("obtain a client certificate with %s: %w", as, err)
	}
	defer done()
	key, keyText, err := m.store.pendingKey()
	if err != nil {
		return err
	}
	cert, err := m.request(ctx, api, key, as)
	if err == nil {
		if useless := usable(cert, keyText, time.Now()); useless != nil {
			err = refusal{useless}
		}
	}
	if err == nil {
		if err = m.store.put(cert, keyText, time.Now()); err == nil {
			m.issued = time.Now()
			m.ports.Log.Info("the node has a new client certificate", "obtained_with", string(as))
			err = m.store.dropKey()
		}
	}
	if _, refused := errors.AsType[refusal](err); refused {
		err = errors.Join(err, m.store.dropKey())
	}
	if err != nil {
		return fmt.Errorf("obtain a client certificate with %s: %w", as, err)
	}
	if as == asBootstrap {
		return writeKubeconfig(m.kubeconfig, m.bootstrapFrom, m.store.path(nameCurrent))
	}
	return nil
}

// request asks for a certificate of the key.
func (m *Manager) request(ctx context.Context, api Requests, key crypto.Signer, as by) ([]byte, error) {
	want, err := build(m.node, key)
	if err != nil {
		return nil, err
	}
	r, err := submit(ctx, api, want)
	if err != nil {
		return nil, err
	}
	m.ports.Log.Info("waiting for the client certificate to be signed", "csr", r.Name, "signer", r.Spec.SignerName)
	if as != asStored {
		m.ports.Waiting("CertificateSigningRequest " + r.Name +
			" waits to be approved and signed (kubectl certificate approve " + r.Name + ")")
	}
	return issued(ctx, api, r)
}

// failed reports a failure and returns how long to wait.
func (m *Manager) failed(err error) time.Duration {
	m.errors.Inc()
	if m.ttl() < 0 || m.end.Load() == 0 {
		m.ports.Waiting(err.Error())
	}
	m.failures++
	rest := pause.After(m.failures, retryFirst, retryMax)
	if _, refused := errors.AsType[refusal](err); refused {
		rest = refusedPause
	}
	if m.failures == 1 || m.failures%10 == 0 || rest == refusedPause {
		m.ports.Failed(err)
		m.ports.Log.Error("can't obtain the node's client certificate, retrying", "error", err,
			"failures", m.failures, "pause", rest)
	}
	return rest
}
