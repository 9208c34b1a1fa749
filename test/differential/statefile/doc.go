// Package statefile compares the resource daemon's state files and its memory manager with Kubernetes' own code. Both
// read what the other has written, and live through the same random lives.
//
// The daemon's packages are internal, so their own tests are started as programs: TestRewrite of internal/statefile and
// TestLives of internal/memory take a directory that is made here.
package statefile
