// Package drastate compares the resource daemon's files about ResourceClaims with Kubernetes' own code: each reads
// what the other has written.
//
// The daemon's packages are internal, so that a test of its own is started as a program: TestRewrite of
// internal/dra/state, which takes a directory that is made here.
package drastate
