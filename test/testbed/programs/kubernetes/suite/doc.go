// Package suite is Kubernetes' own end-to-end suite as one test binary, as far as a node agent decides it:
// test/e2e/common and test/e2e/node, and of test/e2e/storage and test/e2e/network the specs that need no
// storage driver and no service proxy. What of it is run is said in package conformance.
package suite
