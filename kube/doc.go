// Package kube is kubelot's only client of the API server: the few typed calls that a node
// agent makes, watches that deliver whole collections, and a cache of the ConfigMaps and
// Secrets that pods refer to. It is slim on purpose: no clientset, no informers, no indexes.
//
// # Reads
//
// A kubeconfig file, and the certificate and token files it names. What changes in them counts from the next request
// on.
//
// # Writes
//
// Only what a caller asks for by a method of Client.
//
// # Owns
//
// Nothing on disk. A watch ends with the context it was started with.
//
// # Guarantees
//
// A watch survives any outage of the API server: it lists again and reports what was added,
// changed and deleted meanwhile. The watches of a client take turns to ask a server that doesn't answer, and all go on
// when it does. A slow reader is caught up with the latest state of each object; intermediate states may be left out,
// the last one never is. Objects handed out are shared: callers must not change them.
package kube
