// Package matrix tests a table of what may happen to each part of a node. The parts are kubelot's daemons, alone and
// all at once, the container runtime and the API server. Each is killed, frozen, restarted, away for a time, and
// replaced by another version. Meanwhile pods run, come and go, and a client has a session in one of them and follows
// its log.
//
// Each cell of the table is a subtest, TestMatrix/<part>/<action>. docs/matrix.md has the table with the results. It is
// written from the results of a run (RESULTS), and a test checks that it has all cells.
//
//	make matrix FOCUS='TestMatrix/podsync'   # short times
//	make matrix FULL=1 UPDATE=1              # SIGSTOP for 60 s, away for 5 minutes; docs/matrix.md is written
//
// Of the latter, more than one and a half hours are pauses.
//
// A checkout without the last release's commit can't build the other version of the daemons. Those cells are then
// skipped, with a message.
package matrix
