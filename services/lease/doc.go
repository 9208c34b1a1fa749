// Package lease is the node's identity at the API server: it obtains and renews the client certificate that all daemons use,
// registers the Node, renews its lease and reports its status and conditions.
//
// # Reads
//
// node.machine, node.runtime, node.pressure, health.* and what it has itself left in node.object on the bus; the Node and its lease at the API server; the
// addresses of the machine; the kubeconfig and the bootstrap kubeconfig.
//
// # Writes
//
// node.object on the bus. The Node, its status and its lease (in kube-node-lease) and CertificateSigningRequests at the API server.
// The client certificate in the certificate directory, and the kubeconfig of TLS bootstrap (package clientcert).
//
// # Owns
//
// The Node object's status. On disk the client certificate, with rotateCertificates or a bootstrap kubeconfig.
//
// # Guarantees
//
// The lease is renewed by a loop of its own that needs nothing but the API server: neither the bus nor any other
// daemon nor a Node status that can't be written holds it up. The Ready condition follows the runtime, the network, and the
// daemons without which pods can't run; a daemon may be away for half a minute, and the bus for as long as it likes, without a change of
// it. Changes of conditions are written at once (a duel of two writers once a second), others within ten seconds, and all is reported every
// five minutes. node.object has an empty UID until the Node is registered, and always in standalone mode. Once it has had
// one it keeps it through restarts, until the API server says that the Node is gone. While there is no client certificate, static pods
// run all the same, and the daemon's health says what is waited for.
package lease
