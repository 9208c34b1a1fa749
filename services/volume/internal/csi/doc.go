// Package csi has the volumes of CSI drivers: it has a driver stage and publish what pods want, and take it back.
//
// decide.go is the pure core: what to do next, and what a call's outcome means. record.go and disk.go are the state,
// which is on disk. worker.go does one action after the other, calls.go makes the calls, volumes.go is what pods ask
// for, block.go what is different where they get devices, and unused.go unstages what no pod has any more. grow.go and
// usage.go are about volumes that pods have. target.go says what a driver is told of a volume. docs/adr/0029 has the
// reasons.
//
// # Reads
//
// Registered plugins and CSIDriver objects, which the daemon sets; secrets that volumes name, and tokens of service
// accounts.
//
// # Writes
//
// vol_data.json beside each volume, in the kubelet's form: each takes over from the other.
//
// # Owns
//
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>               the record, and the mount point of the driver
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>   the record, and the staging path
//	pods/<uid>/plugins/kubernetes.io~csi/<volume>               of a device: the record
//	pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>         of a device: the link to what is published
//	plugins/kubernetes.io/csi/volumeDevices                     of devices: the volumes' records, staging, publish, dev
//
// # Guarantees
//
//   - One call at a time changes a volume. NodeGetVolumeStats may run beside it.
//   - A driver holds up its own volumes only.
//   - A call is recorded on disk before it is made. One without a certain outcome is made again, or its opposite.
//   - A volume isn't staged while its unstaging isn't answered.
//   - Nothing is ever removed but records and empty directories on which nothing is mounted.
//   - Secrets and tokens go to the driver, and into no log, error or file.
package csi
