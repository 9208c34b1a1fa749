// Package logs reads the log files of containers as container runtimes write them (CRI log format: time, stream, tag
// and text, a record per line).
//
// # Guarantees
//
//   - Memory doesn't depend on the length of a line or of the file.
//   - What is followed is read on across rotations: a renamed file to its end, then the new one.
//   - A slow writer holds up its own reader only, and nothing is buffered for it.
//   - Records that make no sense are left out.
package logs
