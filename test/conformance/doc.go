// Package conformance says which specs of Kubernetes' own suites are run on a node, what may fail there because of the
// machine, and how the results of two agents are compared. There are four suites: Cluster is test/e2e; Storage
// is the part of it that judges a CSI driver; Node is test/e2e_node, which drives the agent itself: it writes its
// configuration, stops and restarts it; NUMA is the part of Node that is run in a virtual machine with NUMA nodes.
//
// Reads: JUnit files that the suite wrote. Writes: nothing; package run runs the suites, cmd/conformance does both.
//
// Guarantees: a spec that the upstream kubelet passes and kubelot doesn't is always an error, also when limits.txt
// names it; a spec in limits.txt is run and shown like any other. What the kubelet passes is in passes.txt: a run fails
// if one of those in its scope fails, is skipped or isn't run at all, and it needs no results of the kubelet for that.
// In a quick run, a few specs that fail are run once more, alone: that counts, and the log tells of both. A suite that
// takes longer than its time limit, or whose end the specs' results don't explain, is an error.
//
// The suite's binary is built from test/testbed/programs/kubernetes/suite, once per version (minutes), as the test
// bed's other programs are. All images are made here and pulled from a registry on loopback that is the mirror of all
// others. There is one node, no service proxy and no cluster DNS: what needs those is out of scope, see cluster.go. The
// storage suite has the driver of package csidriver with the real external-provisioner, external-attacher and
// external-resizer. The node suite has an API server in its own process, fixed paths and ports, and calls systemd:
// package node/units answers in systemd's place, and the whole run has mounts and a network of its own
// (run/apart.sh). In the virtual machine it is the same program that runs the suite, and its results are copied back.
package conformance
