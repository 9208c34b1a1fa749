// Package upgrade moves the daemons of a node to the executables of another version, one after the other, while the
// pods run (docs/adr/0028).
//
// # Reads
//
// The links kubelot-<daemon> of a directory, which the crew's processes were started by (tools/install.sh makes them),
// /proc for those processes, and the daemons' health on the bus.
//
// # Writes
//
// Those links, each replaced at once. It has a daemon started again by systemctl where systemd runs it, and elsewhere
// by SIGTERM, after which kubelot up starts it again.
//
// # Guarantees
//
//   - What packages own is left to their manager: nothing is moved, and the error names its commands.
//   - Nothing is moved before each of the new executables has run and said its version.
//   - The bus goes first, because it knows the permissions of all daemons, and last on the way to an older version.
//   - The next daemon is moved only when the one before runs the new version and the whole crew is as well as it was.
//   - A daemon that isn't well in time goes back to the executable that its process had, wherever its link led to by
//     then, and the upgrade ends there, with an error. The daemons that were moved before stay: daemons of two releases
//     run side by side.
//   - A daemon that is new in a version is started after the bus, and one that an older version hasn't got is stopped
//     and loses its link.
package upgrade
