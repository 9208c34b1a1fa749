// Package logs rotates the logs of containers, and finds those that belong to nobody.
//
// # Guarantees
//
//   - Names are the kubelet's: <log>.<time> for what was rotated last, <log>.<time>.gz for what was rotated before it.
//   - No line is lost: a log is renamed, and the runtime writes to it until it has opened a new one. If the runtime
//     can't open one, the old log gets its name back.
//   - The next pass completes what was interrupted. A rotated log is removed only when its compressed form is complete
//     and on disk. On a full disk logs are rotated but not compressed.
//   - Nothing is removed through a symbolic link.
package logs
