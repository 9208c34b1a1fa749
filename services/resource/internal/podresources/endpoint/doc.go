// Package endpoint serves a gRPC API of the node on a unix socket, as the kubelet serves PodResources and Pods.
//
// socket.go makes and removes the socket, bounds.go bounds what clients can use up, and endpoint.go is the server.
//
// # Owns
//
// The socket. Its directory belongs to the API too, but stays.
//
// # Guarantees
//
//   - The socket is made anew at the start. The new one takes the place of an earlier one in a single step, so that a
//     client finds one of the two. It is removed at the end, unless another process has put its own there since.
//   - A file or directory in the socket's place is left alone, and the error says so.
//   - Directory and socket have the kubelet's modes, whatever the umask.
//   - The number of connections, of requests at a time and of requests per second, and the sizes of requests, headers
//     and answers are bounded. Connections without requests, and those of clients that hang, are closed.
//   - When Run returns, no handler runs any more.
package endpoint
