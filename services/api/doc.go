// Package api is the daemon that serves the node's HTTPS API (10250), healthz (10248) and the read-only port (off by
// default). This package is its contract; the daemon is in internal/server, since it has an executable of its own
// (docs/adr/0007) and the rest of the crew must not link what it needs.
//
// # Reads
//
// pod.update, pod.sources, pod.mirror, pod.status (what /pods shows), status.patch and pleg.event (which containers
// there are, and where their logs are), node.object (addresses of the serving certificate), health, node.resources
// (whether device plugins can register); podsync.step if there are traces to be made. From the runtime: streams, and
// what pleg has not told yet. From the API server: authentication and authorization. From the other daemons: the pages
// next to their metrics, and stats.summary.
//
// # Writes
//
// Its health. At the API server: TokenReviews, SubjectAccessReviews, and the CertificateSigningRequest of the serving
// certificate where serverTLSBootstrap is on. To a collector of traces: spans, if the configuration asks for them.
//
// # Owns
//
// The ports 10250, 10248 and 10255, and the serving certificate (kubelet.crt and kubelet.key, or kubelet-server-*.pem,
// in the certificate directory).
//
// # Guarantees
//
//   - Every path of the HTTPS port is authenticated and authorized. A request that can't be checked is refused. Without
//     an API server only what the configuration opens is open. A request that runs something needs create, even over
//     GET.
//   - Paths, parameters, status codes and texts are the kubelet's, since kubectl shows them.
//   - Open streams and followed logs go on when any other daemon is restarted or the bus is away: they are between the
//     client, this process and the runtime or a file.
//   - healthz answers whatever else is away.
//   - Memory doesn't grow with the length of a log's lines, nor with clients that read slowly.
//
// Source: k8s.io/kubernetes pkg/kubelet/server (1.36) for what is served; KEP-2862, KEP-4006, KEP-3288; kubernetes
// issue 119640.
//
// What is where: internal/state is what is known and what follows from it; internal/auth who may do what; internal/logs
// reads log files; internal/gather joins the metrics; internal/traces makes spans; internal/cert keeps the serving
// certificate; internal/server serves it all.
package api
