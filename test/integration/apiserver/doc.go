// Package apiserver tests what talks to the API server, the kube client and the status and lease daemons, with a real
// kube-apiserver: its Node authorizer, its NodeRestriction admission and its patches. The control plane is that of
// test/testbed, run by its own program (.bin/testbed).
package apiserver
