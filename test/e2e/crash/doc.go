// Package crash tests what kubelot promises when its parts fail: a daemon killed at the worst moment, an API
// server or a container runtime that goes away and comes back, and input that is wrong.
//
// The promise is always the same: what ran goes on running and stays Ready, what was asked for is done in the
// end and done once, and whatever is wrong is said in one clear error while the rest goes on.
//
// Run the tests as root:
//
//	GOWORK=off go -C test test ./e2e/crash
//
// KUBELOT_BIN names a directory of kubelot's executables other than .bin.
//
// CSI_ROUNDS is how many volumes come and go in TestCSIKilledAtEveryCall and TestCSIKilledWhileAttaching, each with
// several deaths. With a hundred, each call is met by the death of each daemon, the driver and the API server. That
// takes about half an hour:
//
//	CSI_ROUNDS=100 GOWORK=off go -C test test ./e2e/crash -count=1 -v -timeout 1h -run '^TestCSIKilled'
//
// With KUBELOT_LAYOUT=compact the tests run against the crew in one process: to kill a daemon is to kill that.
// TestStreamsOutliveDaemons is left out, for the daemon that carries the stream dies too; TestKilledDaemon runs once.
package crash
