// Package units is as much of systemd as Kubernetes' node suite needs to drive its kubelet: one transient unit, which
// systemd-run starts, and which systemctl lists, stops, kills and restarts. The agent in it is whatever the manager's
// owner starts, so that the suite drives kubelot as it drives the kubelet.
//
// Reads: requests on a unix socket. Writes: the directory of shims that Install makes. Owns: the agent's process.
//
// Guarantees: a command returns when what it asked for is done; in particular, an agent that was killed or stopped has
// ended, with all its processes. (systemd answers "kill" at once, and the suite then waits only for the agent's
// health port to close.)
//
// The shims are links to the program that runs the suite: it calls Shim first, which acts by the name it is called by.
package units
