// Package live is the shared model of a node that runs: what its daemons, pods, disks and topics do at a moment.
// `kubelot top` and `kubelot ui` are drawn from it.
//
// # Reads
//
// Inputs: messages of the bus (every state and event topic), readings of the daemons' processes, of the machine, and
// whether the bus answers. Package live/feed takes them off a node or a recording.
//
// # Guarantees
//
//   - The model is pure: no I/O, no clock, no goroutine. The same inputs and the same time give the same picture. One
//     goroutine owns a model.
//   - A message may come twice, late, or out of order. The last value of a key by the bus's time counts, and whatever
//     is counted (rates, restarts, happenings) is counted once.
//   - What is remembered is bounded: steps and messages of a pod go with it, and counts are kept for a minute.
//   - A message that can't be decoded is counted and otherwise ignored.
package live
