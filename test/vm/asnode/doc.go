// Package asnode has the tests of kubelot in the kubelet's place on a node of kubeadm, in a virtual machine of its own
// (see package vm): with Debian 12's own container runtime, kubelot's packages, and Kubernetes' own kubeadm.
//
//	make vm-test FOCUS=TestJoin   tests by name; without FOCUS they run after those of package vm
//
// The machine begins without a node agent. Each test makes it a node as docs/install.md tells it to its readers, whose
// commands it takes out of that page, and leaves no trace of the node behind. TestJoin and TestTakeover join a control
// plane on this host, which kubeadm prepares; TestInit has one of static pods in the machine.
package asnode
