// Package credentialprovider asks the programs that the node's administrator names for registry credentials: exec
// credential providers, by which managed clouds let nodes pull images.
//
// # Reads
//
// The configuration (CredentialProviderConfig) once, at Open. Service accounts and tokens of pods from the API server,
// if a provider wants them.
//
// # Writes
//
// Nothing. It runs the providers' programs, with a request on standard input; their answer comes on standard output.
//
// # Owns
//
// The processes that it starts, and credentials and tokens, which are in memory only.
//
// # Guarantees
//
// A program ends, with all processes of its group, after one minute, when its output is too long, and when nobody waits
// for its answer any more. Programs run side by side, and one of them that fails takes nothing away from the others.
// Callers that ask for the same share one run. No error and no log line has credentials or tokens in it. Nothing is
// started by Open, and no goroutine outlives the last call.
//
// The types of k8s.io/kubelet aren't used: they need a scheme with conversions, which costs memory at each start, for
// six small objects.
//
// Source: KEP-2133 (exec credential providers), KEP-4412 (service account tokens for them), API types
// CredentialProviderConfig of kubelet.config.k8s.io, CredentialProviderRequest and CredentialProviderResponse of
// credentialprovider.kubelet.k8s.io. What isn't written there is as in the kubelet 1.36.
package credentialprovider
