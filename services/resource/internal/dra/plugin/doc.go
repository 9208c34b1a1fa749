// Package plugin has the connections to the DRA drivers that are registered (services v1.DRAPlugin and
// v1beta1.DRAPlugin of k8s.io/kubelet), and the streams in which they report the health of devices
// (v1alpha1.DRAResourceHealth).
//
// # Reads
//
// What the caller tells of plugin.registered; what drivers answer.
//
// # Owns
//
// The connections to the drivers.
//
// # Guarantees
//
//   - Of several plugins of a driver the newest one that is connected is called.
//   - A call that is under way outlives the registration of its plugin.
//   - A call ends after callLimit, whatever the driver does. What a driver says is bounded: the size of its answers,
//     how often it is listened to, and its errors, which have one line.
package plugin
