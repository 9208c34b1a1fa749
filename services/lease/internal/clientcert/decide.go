package clientcert

import (
	"crypto/x509"
	"math/rand/v2"
	"time"
)

// facts are what is known of the node's credentials.
type facts struct {
	now time.Time
	// rotate is KubeletConfiguration's rotateCertificates, bootstrap whether there is a bootstrap kubeconfig.
	rotate, bootstrap bool
	// stored is the certificate in the store, and renewAt when it must be renewed; nil for none.
	stored  *x509.Certificate
	renewAt time.Time
	// kubeconfig is what there is of the kubeconfig's.
	kubeconfig user
}

// user is what a kubeconfig says of who one is.
type user struct {
	// usable reports whether it can be read and has a certificate that is valid, or none.
	usable bool
	// own is the certificate that it has in itself or in files outside the store; nil for none. embedded is true where it
	// is in the kubeconfig itself.
	own      *x509.Certificate
	embedded bool
	// refers reports whether it refers to the store.
	refers bool
}

type kind int

const (
	finished kind = iota // nothing is ever to be done
	wait                 // until at
	adopt                // the kubeconfig's own certificate becomes the stored one
	refer                // the kubeconfig is written to refer to the store
	ask                  // for a certificate, as the named user
	helpless             // nothing can be done until somebody brings credentials
)

// by names whose credentials a request for a certificate is made with.
type by string

const (
	asBootstrap  by = "the bootstrap kubeconfig"
	asKubeconfig by = "the kubeconfig"
	asStored     by = "the client certificate"
)

type step struct {
	kind kind
	by   by
	at   time.Time
}

// decide is what to do next. The order is the kubelet's: a valid kubeconfig beats the bootstrap one, the stored
// certificate beats the kubeconfig's, and a stored certificate that has ended is as good as none.
func decide(f facts) step {
	valid := f.stored != nil && f.now.Before(f.stored.NotAfter)
	switch {
	case !f.rotate:
		return once(f, valid)
	case valid && !f.kubeconfig.usable && f.bootstrap:
		return step{kind: refer}
	case valid && f.now.Before(f.renewAt):
		return step{kind: wait, at: f.renewAt}
	case valid:
		return step{kind: ask, by: asStored}
	case f.kubeconfig.own != nil && f.now.Before(f.kubeconfig.own.NotAfter):
		return step{kind: adopt}
	case f.bootstrap:
		return step{kind: ask, by: asBootstrap}
	case f.kubeconfig.usable && !f.kubeconfig.refers:
		return step{kind: ask, by: asKubeconfig}
	}
	return step{kind: helpless}
}

// once is what to do where certificates aren't renewed: at most one is asked for.
func once(f facts, valid bool) step {
	switch {
	case f.kubeconfig.usable:
		return step{kind: finished}
	case !f.bootstrap:
		return step{kind: helpless}
	case valid && !f.kubeconfig.refers:
		return step{kind: refer}
	}
	return step{kind: ask, by: asBootstrap}
}

// renewal is when a certificate must be renewed: after 70 to 90 % of its life, so that nodes that came at the same
// time don't renew at the same time. A signer dates certificates back; of a short-lived one that it has just signed
// half of what is left passes first. issued is when it was signed; zero for not known.
func renewal(c *x509.Certificate, issued time.Time) time.Time {
	life := c.NotAfter.Sub(c.NotBefore)
	at := c.NotBefore.Add(time.Duration((0.7 + 0.2*rand.Float64()) * float64(life)))
	if half := issued.Add(c.NotAfter.Sub(issued) / 2); !issued.IsZero() && at.Before(half) {
		return half
	}
	return at
}
