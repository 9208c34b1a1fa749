// Command k8s-testbed is the Kubernetes control plane of the tests in one
// executable: etcd, kube-apiserver, kube-scheduler, kube-controller-manager,
// kubectl, and the upstream kubelet that benchmarks compare with. It acts as
// the component it is called by (a symlink's name) or the first argument names.
//
// One link instead of six: the components share most of their packages.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // CronJob time zones are resolved by the API server and the controllers

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	os.Exit(run())
}

func run() int {
	name := filepath.Base(os.Args[0])
	component, ok := components[name]
	if !ok && len(os.Args) > 1 {
		name = os.Args[1]
		component, ok = components[name]
		// The components read os.Args themselves (cobra, kubectl's plugin lookup).
		os.Args = os.Args[1:]
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "k8s-testbed: call it by one of the names %v, or pass one as the first argument\n", names())
		return 2
	}
	return component()
}
