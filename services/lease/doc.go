// Package lease is the node's identity at the API server: it obtains and renews the client certificate that all daemons
// use, registers the Node, renews its lease and reports its status and conditions.
//
// # Reads
//
// node.machine, node.runtime, node.pressure, node.shutdown, csi.driver, csi.volumes, health.* and what it has itself
// left in node.object on the bus; the Node, its CSINode and its lease at the API server; the addresses of the machine;
// the kubeconfig and the bootstrap kubeconfig.
//
// # Writes
//
// node.object on the bus. The Node, its status, its CSINode and its lease (in kube-node-lease) and
// CertificateSigningRequests at the API server. The client certificate in the certificate directory, and the kubeconfig
// of TLS bootstrap (package clientcert).
//
// # Owns
//
// The Node object's status, and the CSINode. On disk the client certificate, with rotateCertificates or a bootstrap
// kubeconfig.
//
// # Guarantees
//
//   - A loop of its own renews the lease. It needs nothing but the API server: neither the bus, nor another daemon, nor
//     a Node status that can't be written holds it up. A renewal is never dated before the last one, whatever the clock
//     says.
//   - The Ready condition follows from the runtime, the network, and the daemons without which pods can't run. It
//     doesn't change while a daemon is away for less than half a minute, nor while the bus is away and for half a
//     minute after it.
//   - A condition that changes is written at once, but after five such writes in a row only once a second: two writers
//     may fight over it. Other changes are written within ten seconds. Everything is reported every five minutes.
//   - node.object has an empty UID until the Node is registered, and always in standalone mode. Later it keeps the UID,
//     also through restarts, until the API server says that the Node is gone.
//   - Without a client certificate static pods run nevertheless. The daemon's health says what it waits for.
package lease
