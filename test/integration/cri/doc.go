// Package cri proves on a real containerd what the unit tests show on a fake one: the CRI contract suite, and that pleg
// publishes what containerd does, at once.
package cri
