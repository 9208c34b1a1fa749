// Package cri is kubelot's only client of the container runtime: CRI v1 over gRPC on a unix socket.
// Every daemon that talks to containerd or CRI-O does it through a Client.
//
// # Reads and writes
//
// The runtime's socket, nothing else. The package itself has no policy: it neither retries nor caches.
//
// # Owns
//
// A Client owns one gRPC connection (two where images have an endpoint of their own) until Close.
//
// # Guarantees
//
//   - Dial does no I/O: a runtime that is absent, restarts or comes later is an error of each call, never
//     of the client. A call after the runtime's return succeeds within about 100 ms.
//   - Every call has a deadline; only PullImage, and ExecSync without a timeout, wait as long as their context does.
//   - Errors say which call on which object failed, name the endpoint where it doesn't answer, and keep the gRPC code.
//   - Calls are counted and timed under the kubelet's metric names.
package cri
