// Package logind delays a shutdown of the machine by a lock of systemd-logind, over D-Bus.
//
// # Reads
//
// org.freedesktop.login1 on the system bus (DBUS_SYSTEM_BUS_ADDRESS, or the usual socket): the properties
// InhibitDelayMaxUSec and PreparingForShutdown, the signal PrepareForShutdown.
//
// # Writes
//
// A delay lock (Inhibit). Where logind waits for too short a time: <conf-dir>/99-kubelet.conf, as the kubelet does,
// and SIGHUP to logind by org.freedesktop.systemd1.
//
// # Guarantees
//
//   - The lock is held from the first connection on while it is wanted. It is taken after the signal is subscribed
//     to, so no announcement is missed.
//   - The supervisor keeps a duplicate of the lock (package fdstore). The next process of a killed one holds it on.
//   - If D-Bus or logind goes away, it connects again. The lock outlives both: it is a pipe.
//   - There is one lock at a time: an older one is released when a newer one is there.
//
// Source: org.freedesktop.login1(5), systemd.io/INHIBITOR_LOCKS, logind.conf(5).
package logind
