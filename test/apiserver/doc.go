// Package apiserver tests what talks to the API server, the kube client and the status and lease daemons, with a
// real kube-apiserver: its Node authorizer, its NodeRestriction admission and its patches. The control plane
// is that of test/harness, run by its own program (.bin/testbed), so that this module has the product's versions of the
// Kubernetes libraries and no others.
package apiserver
