// Package api is the place of the daemon that serves the node's HTTPS API (10250), healthz and the
// read-only port. It holds the daemon's contract so far.
//
// # Reads
//
// pod.update, status.patch, pleg.event, node.object, health. From the runtime: logs and streams. From the API server:
// authentication and authorization.
//
// # Writes
//
// Nothing but its health.
//
// # Owns
//
// The ports 10250, 10248 and 10255, and the serving certificate.
//
// # Guarantees
//
// Every path is authenticated and authorized, except healthz on the loopback interface.
package api
