// Package takeover moves a node from a running kubelet to kubelot, and back, while its pods run.
//
// # Reads
//
// The kubelet's command line (/proc), the node's configuration, the directories of its pods and the checkpoints of the
// kubelet's managers below the root directory, the daemons' health on the bus.
//
// # Guarantees
//
//   - Nothing is touched before the check. What kubelot would ignore is listed; what pods use at this moment and
//     kubelot can't do is a reason not to begin.
//   - There are never two agents: the one has ended before the other starts.
//   - If the crew isn't well in time, the kubelet is started again as it was.
package takeover
