// Package crit proves on a real containerd what the unit tests show on a fake one: the CRI contract suite, and
// that pleg publishes what containerd does, at once. It is a module of its own, since it needs root, containerd
// and a minute.
package crit
