// Package stats tells what the machine is: cores, memory, huge pages, disks, identifiers,
// kernel and operating system.
//
// # Reads
//
// /proc, /sys, /etc and statfs of the root directory. Nothing on the bus.
//
// # Writes
//
// node.machine.
//
// # Owns
//
// Nothing on disk.
//
// # Guarantees
//
// The facts are read at start and each minute; a message is sent when they differ. What can't be
// read is left out of the message and named in the daemon's health; it holds up nothing else.
package stats
