// Package shutdown shows how a node ends its pods when its machine shuts down, on a bed of its own with a real
// dbus-daemon. The logind is a fake that passes the same contract suite as the real one (services/gc/logindtest).
package shutdown
