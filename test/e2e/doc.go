// Package e2e tests kubelot as its users meet it: a real control plane, a real containerd, kubelot up, and the API
// server as the only place to ask. What no API tells (a mount, a cgroup, a line of a log) is looked up on the node.
//
// All tests share one bed and have a namespace each. Run them as root:
//
//	GOWORK=off go -C test test ./e2e
//
// KUBELOT_BIN names a directory of kubelot's executables other than .bin.
package e2e
