// Package tracing has the end-to-end tests of traces, with a collector of its own, to which containerd sends its spans
// too.
package tracing
