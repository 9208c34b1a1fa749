// Package driver has the connections to the CSI drivers that are registered, and what they and the cluster say of them.
//
// # Reads
//
// What the caller tells of plugin.registered and of the CSIDriver objects; what a driver says of itself and of the
// node.
//
// # Writes
//
// csi.driver.
//
// # Owns
//
// The connections to the drivers.
//
// # Guarantees
//
//   - A call that is under way outlives another registration of its driver.
//   - A driver is asked again what it can do when the connection to it has ended, for it may have been started again.
//   - What a driver says is bounded: the size of its answers, and its errors, which have one line and none of the
//     secrets that the request had.
package driver
