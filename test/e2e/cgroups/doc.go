// Package cgroups shows where processes are put that aren't a pod's: the crew's (kubeletCgroups), and those of the
// machine (systemCgroups). What the machine is, is for the latter a part of the bed's own cgroup in a mount namespace,
// so that no process but the test's is moved.
package cgroups
