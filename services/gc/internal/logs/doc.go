// Package logs rotates the logs of containers, and finds those that belong to nobody.
//
// # Guarantees
//
//   - Names are the kubelet's: <log>.<time> for what was rotated last, <log>.<time>.gz for what was rotated before it.
//   - No line is lost: a log is renamed, the runtime opens a new one, and goes on writing to the old one until it has. Where it
//     can't, the old one gets its name back, unless a new one is there.
//   - Whatever is interrupted is mended by the next pass. A rotated log is removed only once its compressed form is complete
//     and on disk; a disk that is full keeps it as it is, and doesn't keep the log from being rotated.
//   - Symbolic links are never followed out of the directory of logs when something is removed.
package logs
