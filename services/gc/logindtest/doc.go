// Package logindtest has a system bus of a test's own with a small logind on it, and a contract suite that this one
// and the real one pass (Contract).
//
// What the fake does is what systemd-logind 252 does, as far as a delay lock of a shutdown is concerned
// (org.freedesktop.login1(5), systemd.io/INHIBITOR_LOCKS; src/login/logind-dbus.c of systemd):
//
//   - Inhibit answers with the writing end of a named pipe. The lock is released when nobody has that end open any
//     more. The pipe outlives logind.
//   - While a shutdown is announced, Inhibit is refused as OperationInProgress.
//   - PowerOff announces PrepareForShutdown(true), and goes on when all delay locks are released or
//     InhibitDelayMaxUSec is over.
//   - SIGHUP has it read logind.conf.d again.
package logindtest
