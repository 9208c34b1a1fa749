// Package resources compares the cores of kubelot's topology manager and CPU manager with Kubernetes' own.
//
// Kubernetes' packages topologymanager and cpumanager are copied, for a run, into a module of their own, together with
// kubelot's packages, and with their algorithms replaced by calls of kubelot's (testdata/.../shim.go). So Kubernetes'
// own tests, with their tables of machines and requests, run on kubelot's code. Besides, both sides live through the
// same random lives on invented machines.
package resources
