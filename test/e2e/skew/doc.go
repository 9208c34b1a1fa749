// Package skew tests daemons of two releases side by side: those of the last release (deploy/releases.txt) and those of
// this checkout. It also records what a release says on the bus, for the tests of those who read it.
//
// A checkout without the release's commit can't build it. The tests that need it are skipped then, and say so on
// standard error.
package skew
